package pseudonym

import (
	"net/netip"
	"path/filepath"
	"testing"

	"github.com/gopacket/gopacket/layers"

	"heddle/internal/polltest"
	"heddle/lab"
	"heddle/lab/labtest"
	"heddle/lab/peer"
)

// A gateway reads the name, and hands the connection over to another machine. The site's machine speaks with the client itself, and no byte of the
// page goes to the gateway or comes from it.
func TestGatewayCarriesNoBytes(t *testing.T) {
	t.Parallel()
	w := &world{Overlay: labtest.UpOverlay(t, lab.OpenCloud("cloud", "news")), t: t, dir: filepath.Join(t.TempDir(), "cloud")}
	var err error
	if w.cloud, err = peer.NewCloud(t.Context(), w.Overlay.Overlay, w.dir, gateway); err != nil {
		t.Fatal(err)
	}
	const metrics = "127.0.0.1:9480"
	if err := w.cloud.Replace(`# gateway-mode = "auto"`, `gateway-mode = "handoff"`, `# metrics = "127.0.0.1:9480"`, `metrics = "`+metrics+`"`); err != nil {
		t.Fatal(err)
	}
	if _, err := w.cloud.Serve(t.Context()); err != nil {
		t.Fatal(err)
	}
	inside := w.Host("news").Addrs()[0]
	w.webServer(news, "news")
	agent := netip.AddrPortFrom(inside, 4444)
	s := w.cloud.At("news", news, inside)
	s.Socket, s.Addresses = filepath.Join(t.TempDir(), "sidecar"), []string{"handoff:" + agent.String()}
	if _, err := w.cloud.Add(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	log, err := w.cloud.Agent(t.Context(), s, agent)
	if err != nil {
		t.Fatal(err)
	}
	r := w.get(news)

	const atSite, atClient = "cloud/news", "isp/client"
	stop := labtest.Watch(t, w.Instance, atSite, atClient)
	client := w.Host("client").Addrs()[0]
	for range 3 {
		if page, status, err := w.curl(r, r.To("/large.bin")); err != nil || status != 200 || len(page) != 5<<20 {
			t.Fatalf("%d bytes, %d, %v\n%s", len(page), status, err, log.Log())
		}
	}
	polltest.Await(t, "three connections are counted", func() bool { return number(w, metrics, "heddle_pseudonym_gateway_moved") == 3 })
	if n := number(w, metrics, "heddle_pseudonym_gateway_relayed"); n > 2 { // those of the registration
		t.Errorf("the gateway relayed %v connections", n)
	}
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
