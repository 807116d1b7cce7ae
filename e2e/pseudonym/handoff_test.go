package pseudonym

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"

	"heddle/internal/polltest"
	"heddle/lab"
	"heddle/lab/labtest"
	"heddle/lab/peer"
)

const gatewayMetrics = "127.0.0.1:9480"

// movingWorld is a cloud whose gateway hands connections over to the news, on a machine of its own, and a pseudonym of it.
func movingWorld(t *testing.T, of lab.World) (w *world, r registered, agent *peer.Process) {
	t.Helper()
	t.Parallel()
	w = &world{Overlay: labtest.UpOverlay(t, of), t: t, dir: filepath.Join(t.TempDir(), "cloud")}
	var err error
	if w.cloud, err = peer.NewCloud(t.Context(), w.Overlay.Overlay, w.dir, gateway); err != nil {
		t.Fatal(err)
	}
	if err := w.cloud.Replace(`# gateway-mode = "auto"`, `gateway-mode = "handoff"`, `# metrics = "127.0.0.1:9480"`, `metrics = "`+gatewayMetrics+`"`); err != nil {
		t.Fatal(err)
	}
	if _, err := w.cloud.Serve(t.Context()); err != nil {
		t.Fatal(err)
	}
	inside := w.Host("news").Addrs()[0]
	w.webServer(news, "news")
	at := netip.AddrPortFrom(inside, 4444)
	s := w.cloud.At("news", news, inside)
	s.Socket, s.Addresses = filepath.Join(t.TempDir(), "sidecar"), []string{"handoff:" + at.String()}
	if _, err := w.cloud.Add(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if agent, err = w.cloud.Agent(t.Context(), s, at); err != nil {
		t.Fatal(err)
	}
	return w, w.get(news), agent
}

// moved waits until the gateway has handed over so many connections, and fails if it relayed others than those of the registration.
func (w *world) moved(want float64) {
	w.t.Helper()
	polltest.Await(w.t, fmt.Sprintf("%v connections are counted", want), func() bool { return number(w, gatewayMetrics, "heddle_pseudonym_gateway_moved") == want })
	if n := number(w, gatewayMetrics, "heddle_pseudonym_gateway_relayed"); n > 2 {
		w.t.Errorf("the gateway relayed %v connections", n)
	}
}

// Doctor says by what a machine would lead connections that move, and why another one may move none.
func TestDoctorChecksHandOff(t *testing.T) {
	w, _, _ := movingWorld(t, lab.OpenCloud("cloud", "news"))
	says := func(host, want string) {
		t.Helper()
		var all []struct{ Check, What string }
		out := w.Run(host, "pseudonym", "doctor", w.cloud.File(), "--json")
		if err := json.Unmarshal([]byte(out), &all); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		i := slices.IndexFunc(all, func(one struct{ Check, What string }) bool { return one.Check == "handoff" })
		if i < 0 || !strings.Contains(all[i].What, want) {
			t.Errorf("%s: not %q:\n%s", host, want, out)
		}
	}
	says("cloud", "lead them by bpf")
	says("client", "does not route packets")
	if err := w.cloud.Replace(`# gateway-switch = "auto"`, `gateway-switch = "ovs"`, `# gateway-bridge = "br0"`, `gateway-bridge = "none0"`); err != nil {
		t.Fatal(err)
	}
	says("cloud", "the bridge none0 of Open vSwitch")
}

// A client's link that loses, reorders and duplicates packets costs a connection that moves no byte.
func TestHandOffOverABadLink(t *testing.T) {
	of := lab.OpenCloud("cloud", "news")
	of.Links[0] = of.Links[0].Both(lab.Shape{Delay: 5 * time.Millisecond})
	w, r, agent := movingWorld(t, of)
	link := w.Link(of.Links[0].Name)
	if err := link.Reshape(func(s *lab.Shape) { s.Loss, s.Reorder, s.Duplicate = 0.05, 0.1, 0.1 }); err != nil {
		t.Fatal(err)
	}
	const times, size = 15, 200_000
	for range times {
		page, status, err := w.curl(r, r.To("/large.bin"), "--range", fmt.Sprintf("0-%d", size-1))
		if err != nil || status != 206 || len(page) != size {
			t.Fatalf("%d bytes, %d, %v\n%s", len(page), status, err, agent.Log())
		}
	}
	w.moved(times)
	if s, err := link.Status(); err != nil || s.AtoB.Lost == 0 || s.BtoA.Lost == 0 || s.AtoB.Duplicated == 0 || s.BtoA.Reordered == 0 {
		t.Errorf("the link was a good one: %+v, %v", s, err)
	}
}

// A gateway reads the name, and hands the connection over to another machine. The site's machine speaks with the client itself, and no byte of the
// page goes to the gateway or comes from it.
func TestGatewayCarriesNoBytes(t *testing.T) {
	w, r, log := movingWorld(t, lab.OpenCloud("cloud", "news"))
	const atSite, atClient = "cloud/news", "isp/client"
	stop := labtest.Watch(t, w.Instance, atSite, atClient)
	client := w.Host("client").Addrs()[0]
	for range 3 {
		if page, status, err := w.curl(r, r.To("/large.bin")); err != nil || status != 200 || len(page) != 5<<20 {
			t.Fatalf("%d bytes, %d, %v\n%s", len(page), status, err, log.Log())
		}
	}
	w.moved(3)
	seen := stop()
	var direct, ofGateway int
	for _, p := range seen[atSite] {
		ip, isIP := p.Layer(layers.LayerTypeIPv4).(*layers.IPv4)
		tcp, isTCP := p.Layer(layers.LayerTypeTCP).(*layers.TCP)
		if !isIP || !isTCP {
			continue
		}
		n := int(ip.Length) - 4*int(ip.IHL) - 4*int(tcp.DataOffset)
		switch {
		case ip.SrcIP.Equal(client.AsSlice()) || ip.DstIP.Equal(client.AsSlice()):
			direct += n
		default:
			ofGateway += n
		}
	}
	if direct < 3*5<<20 || ofGateway > 256<<10 {
		t.Errorf("on the site's link are %d bytes of the client, and %d of the gateway", direct, ofGateway)
	}
	for _, p := range seen[atClient] {
		tcp, ok := p.Layer(layers.LayerTypeTCP).(*layers.TCP)
		ip, _ := p.Layer(layers.LayerTypeIPv4).(*layers.IPv4)
		if p.Layer(layers.LayerTypeICMPv4) != nil || ok && !ip.SrcIP.Equal(client.AsSlice()) && (tcp.RST || !ip.SrcIP.Equal(gateway.AsSlice())) { // curl resets what it has not read
			t.Errorf("the client's network sees %v", p)
		}
	}
}
