package pseudonym

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"heddle/internal/polltest"
	"heddle/internal/sysctl"
	"heddle/lab"
	"heddle/lab/labtest"
	"heddle/lab/peer"
)

const gatewayMetrics = "127.0.0.1:9480"

// movingWorld is a cloud whose gateway hands connections over to the news, on a machine of its own, and a pseudonym of it. serve starts
// the cloud. In a world of [lab.WithIPv6] gateway and agent have addresses of both families.
func movingWorld(t *testing.T, of lab.World, serve func(*world)) (w *world, r registered, agent *peer.Process) {
	t.Helper()
	return movingWorldTo(t, of, serve, (*world).sidecar)
}

// sidecar starts what serves the news at a socket, where the agent leads without more flags.
func (w *world) sidecar(s peer.Sidecar) (flags []string) {
	w.t.Helper()
	if _, err := w.cloud.Sidecar(w.t.Context(), s); err != nil {
		w.t.Fatal(err)
	}
	return nil
}

// movingWorldTo is [movingWorld] with something else that serves the news, for which the agent has more flags.
func movingWorldTo(t *testing.T, of lab.World, serve func(*world), site func(*world, peer.Sidecar) (flags []string)) (w *world, r registered, agent *peer.Process) {
	t.Helper()
	t.Parallel()
	w = &world{Overlay: labtest.UpOverlay(t, of), t: t, dir: filepath.Join(t.TempDir(), "cloud")}
	var err error
	if w.cloud, err = peer.NewCloud(t.Context(), w.Overlay.Overlay, w.dir, gateway); err != nil {
		t.Fatal(err)
	}
	w.set(`# gateway-mode = "auto"`, `gateway-mode = "handoff"`, `# metrics = "127.0.0.1:9480"`, `metrics = "`+gatewayMetrics+`"`)
	inside := slices.DeleteFunc(w.Host("news").Addrs(), func(a netip.Addr) bool { return a == lab.DirectSite }) // no gateway comes there
	at := netip.AddrPortFrom(inside[0], 4444)
	if len(inside) > 1 {
		w.set(fmt.Sprintf("gateways = [%q]", gateway), fmt.Sprintf("gateways = [%q, %q]", gateway, lab.CloudGateway6))
		at = netip.AddrPortFrom(netip.IPv6Unspecified(), 4444)
	}
	serve(w)
	w.webServer(news, "news")
	s := w.cloud.At("news", news, inside[0])
	s.Socket = filepath.Join(t.TempDir(), "sidecar")
	for _, a := range inside {
		s.Addresses = append(s.Addresses, cmp.Or(w.handoff, "handoff:")+netip.AddrPortFrom(a, at.Port()).String())
	}
	if err := w.cloud.Enrol(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if agent, err = w.cloud.Agent(t.Context(), s, at, site(w, s)...); err != nil {
		t.Fatal(err)
	}
	return w, w.get(news), agent
}

// serveAll runs the whole cloud in one process.
func (w *world) serveAll() {
	w.t.Helper()
	if _, err := w.cloud.Serve(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

// set replaces texts in cloud.toml, given in pairs.
func (w *world) set(pairs ...string) {
	w.t.Helper()
	if err := w.cloud.Replace(pairs...); err != nil {
		w.t.Fatal(err)
	}
}

// serveOverBridge lets a bridge of Open vSwitch join the networks of the gateway's machine, and lead what moves.
func (w *world) serveOverBridge() {
	w.t.Helper()
	w.bridge("cloud")
	w.serveAll()
}

// serveByRules lets rules of nftables lead what moves.
func (w *world) serveByRules() {
	w.t.Helper()
	w.set(`# gateway-switch = "auto"`, `gateway-switch = "nft"`)
	w.serveAll()
}

const bridge = "br0"

// bridge makes a bridge of Open vSwitch on a host. That of the host cloud is the gateway's.
func (w *world) bridge(host string) {
	w.t.Helper()
	if err := peer.OpenVSwitch(w.t.Context(), w.Host(host), bridge); errors.Is(err, peer.ErrMissing) {
		w.t.Skip(err)
	} else if err != nil {
		w.t.Fatal(err)
	}
	if host == "cloud" {
		w.set(`# gateway-switch = "auto"`, `gateway-switch = "ovs"`, `# gateway-bridge = "br0"`, fmt.Sprintf("gateway-bridge = %q", peer.BridgeSocket(w.Host(host), bridge)))
	}
}

// serveApart runs the switch in a process of its own, and everything else in one that has no rights but to listen at ports below 1024.
func (w *world) serveApart() {
	w.t.Helper()
	socket := filepath.Join(w.t.TempDir(), "switch")
	w.set(`# switch = "unix:/run/heddle-switch/socket"`, fmt.Sprintf("switch = %q", "unix:"+socket))
	w.serveInTwo("")
}

// serveInTwo runs all switches in one process, with an address for its metrics or none, and everything else in another one, as [world.serveApart] does.
func (w *world) serveInTwo(metrics string) {
	w.t.Helper()
	text, err := os.ReadFile(w.cloud.File())
	if err != nil {
		w.t.Fatal(err)
	}
	file := filepath.Join(w.dir, "switch.toml")
	if err := os.WriteFile(file, bytes.ReplaceAll(text, []byte(gatewayMetrics), []byte(metrics)), 0o600); err != nil {
		w.t.Fatal(err)
	}
	w.Start("cloud", "serving "+zone, "pseudonym", "serve", file, "--only", "switch")
	p, err := peer.Start(w.t.Context(), w.Host("cloud"), "setpriv", "--bounding-set=-all,+net_bind_service", "--inh-caps=-all",
		labtest.Heddle, "pseudonym", "serve", w.cloud.File(), "--only", "store,linker,dns,gateway")
	if err == nil {
		w.t.Cleanup(p.Stop) // before its directory is removed
		err = p.AwaitLog(w.t.Context(), "serving "+zone)
	}
	if err != nil {
		w.t.Fatal(err)
	}
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
	w, _, _ := movingWorld(t, lab.OpenCloud("cloud", "news"), (*world).serveAll)
	saysBy := func(host, want string, before ...string) {
		t.Helper()
		var all []struct{ Check, What, Hint string }
		command := append(before, labtest.Heddle, "pseudonym", "doctor", w.cloud.File(), "--json")
		out, err := w.Host(host).Command(t.Context(), command[0], command[1:]...).Output()
		if err = errors.Join(err, json.Unmarshal(out, &all)); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		i := slices.IndexFunc(all, func(one struct{ Check, What, Hint string }) bool { return one.Check == "handoff" })
		if i < 0 || !strings.Contains(all[i].What+"; "+all[i].Hint, want) {
			t.Errorf("%s %v: not %q:\n%s", host, before, want, out)
		}
	}
	says := func(host, want string) {
		t.Helper()
		saysBy(host, want)
	}
	says("cloud", "lead them by bpf")
	key, err := w.Host("cloud").Command(t.Context(), labtest.Heddle, "pseudonym", "gateway-key", w.cloud.File()).Output()
	agent := filepath.Join(t.TempDir(), "agent.toml")
	text := fmt.Sprintf("identity = %q\ngateway-key = %q\nto = \"proxy:127.0.0.1:80\"\n", w.cloud.Identity(news), strings.TrimSpace(string(key)))
	if err = errors.Join(err, os.WriteFile(agent, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
	for sack, other := range map[string]bool{"1": false, "0": true} {
		if err := w.Host("news").Do(func() error { return sysctl.Set("/proc/sys/net/ipv4/tcp_sack", sack) }); err != nil {
			t.Fatal(err)
		}
		out, _, _ := w.Try("news", "", "pseudonym", "doctor", "--agent", agent)
		if strings.Contains(out, "net.ipv4.tcp_sack is 0") != other || strings.Count(out, " yes ") < 3 { // the kernel of this machine may be set otherwise
			t.Errorf("the agent's machine with tcp_sack=%s:\n%s", sack, out)
		}
	}
	routes := func(want string) {
		t.Helper()
		if out, _, _ := w.Try("news", "", "pseudonym", "doctor", "--agent", agent); !strings.Contains(out, want) {
			t.Errorf("not %q:\n%s", want, out)
		}
	}
	routes("lead to clients as those of other machines do")
	if out, err := w.Host("news").Command(t.Context(), "ip", "link", "set", "cloud", "mtu", "1400").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	routes("cloud has an MTU of 1400")
	if out, err := w.Host("news").Command(t.Context(), "ip", "route", "change", "default", "via", w.Host("news").Addrs()[0].Prev().String(), "initcwnd", "4").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	routes("has initcwnd 4")
	says("client", "does not route packets")
	without := []string{"setpriv", "--inh-caps=-all"}
	saysBy("cloud", "root lacks CAP_NET_ADMIN", append(without, "--bounding-set=-all")...)
	saysBy("cloud", "lead them by nft", append(without, "--bounding-set=-all,+net_admin")...)
	w.set(`# gateway-switch = "auto"`, `gateway-switch = "bpf" # alone`)
	saysBy("cloud", "CAP_BPF", append(without, "--bounding-set=-all,+net_admin")...)
	w.set(`gateway-switch = "bpf" # alone`, `# gateway-switch = "auto"`)
	w.set(`# gateway-switch = "auto"`, `gateway-switch = "ovs"`, `# gateway-bridge = "br0"`, `gateway-bridge = "none0"`)
	says("cloud", "the bridge none0 of Open vSwitch")
	w.set(`# switch = "unix:/run/heddle-switch/socket"`, `switch = "unix:/none"`)
	says("cloud", "the switch: it does not answer")
}

// A client's link that loses, reorders and duplicates packets costs a connection that moves no byte. No device here is one of Ethernet: emulated links
// carry IP packets alone.
func TestHandOffOverABadLink(t *testing.T) {
	of := lab.OpenCloud("cloud", "news")
	for i := range of.Links {
		of.Links[i] = of.Links[i].Both(lab.Shape{Delay: time.Millisecond})
	}
	of.Links[0] = of.Links[0].Both(lab.Shape{Delay: 5 * time.Millisecond})
	w, r, agent := movingWorld(t, of, (*world).serveAll)
	link := w.Link(of.Links[0].Name)
	if err := link.Reshape(func(s *lab.Shape) { s.Loss, s.Reorder, s.Duplicate = 0.05, 0.1, 0.1 }); err != nil {
		t.Fatal(err)
	}
	const times, size = 15, 200_000
	at := fmt.Sprintf("%s:443:%v", r.Name, gateway) // the resolver of a program gives up after two lost packets
	for range times {
		page, status, err := w.curl(r, r.To("/large.bin"), "--range", fmt.Sprintf("0-%d", size-1), "--resolve", at)
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
	for _, c := range []struct {
		by    string
		of    lab.World
		serve func(*world)
	}{{"bpf", lab.OpenCloud("cloud", "news"), (*world).serveAll}, {"bpf over IPv6", lab.WithIPv6(lab.OpenCloud("cloud", "news")), (*world).serveAll}, {"ovs", lab.BridgedCloud("cloud", "news"), (*world).serveOverBridge},
		{"nft over IPv6", lab.WithIPv6(lab.OpenCloud("cloud", "news")), (*world).serveByRules}, {"bpf in another process", lab.OpenCloud("cloud", "news"), (*world).serveApart}} {
		t.Run(c.by, func(t *testing.T) {
			w, r, agent := movingWorldTo(t, c.of, c.serve, (*world).toldSidecar)
			w.carriesNoBytes(r, agent, c.by == "ovs", 0)
		})
	}
}

// carriesNoBytes fetches a large page from a server that is told the client's own address. A switch that reorders may pass a client's reset before what the client had sent, which the site's machine answers
// by resets. So many connections moved before.
func (w *world) carriesNoBytes(r registered, log *peer.Process, reorders bool, before int) {
	t := w.t
	const atSite, atClient = "cloud/news", "isp/client"
	stop := labtest.Watch(t, w.Instance, atSite, atClient)
	all := w.Host("client").Addrs()
	client, gateway, family := all[0], gateway, "-4"
	if len(all) > 1 {
		client, gateway, family = all[1], lab.CloudGateway6, "-6"
	}
	for range 3 {
		if page, status, err := w.curl(r, r.To("/large.bin"), family); err != nil || status != 200 || len(page) != 5<<20 {
			t.Fatalf("%d bytes, %d, %v\n%s", len(page), status, err, log.Log())
		}
	}
	if who, status, err := w.curl(r, r.To("/who"), family); err != nil || status != 200 || who != client.String() {
		t.Errorf("the site's server is told of the client %q, who is %v; %d, %v", who, client, status, err)
	}
	w.moved(float64(before + 4))
	seen := stop()
	var direct, ofGateway int
	for _, p := range seen[atSite] {
		from, to, size := ends(p)
		tcp, isTCP := p.Layer(layers.LayerTypeTCP).(*layers.TCP)
		if !isTCP {
			continue
		}
		n := size - 4*int(tcp.DataOffset)
		switch {
		case from == client || to == client:
			direct += n
		default:
			ofGateway += n
		}
	}
	if direct < 3*5<<20 || ofGateway > 256<<10 {
		t.Errorf("on the site's link are %d bytes of the client, and %d of the gateway", direct, ofGateway)
	}
	over := map[layers.TCPPort]bool{} // curl resets what it has not read
	for _, p := range seen[atClient] {
		tcp, ok := p.Layer(layers.LayerTypeTCP).(*layers.TCP)
		from, _, _ := ends(p)
		icmp6, _ := p.Layer(layers.LayerTypeICMPv6).(*layers.ICMPv6)
		failed := p.Layer(layers.LayerTypeICMPv4) != nil || icmp6 != nil && icmp6.TypeCode.Type() < 128 // the others are no errors (RFC 4443, section 2.1)
		switch {
		case ok && from == client:
			over[tcp.SrcPort] = over[tcp.SrcPort] || tcp.RST
		case failed, ok && from != gateway, ok && tcp.RST && !(reorders && over[tcp.DstPort]):
			t.Errorf("the client's network sees %v", p)
		}
	}
}

// ends returns the addresses of a packet, and the bytes that it has after its header of IP.
func ends(p gopacket.Packet) (from, to netip.Addr, size int) {
	switch ip := p.NetworkLayer().(type) {
	case *layers.IPv4:
		from, _ = netip.AddrFromSlice(ip.SrcIP)
		to, _ = netip.AddrFromSlice(ip.DstIP)
		return from.Unmap(), to.Unmap(), int(ip.Length) - 4*int(ip.IHL)
	case *layers.IPv6:
		from, _ = netip.AddrFromSlice(ip.SrcIP)
		to, _ = netip.AddrFromSlice(ip.DstIP)
		return from, to, int(ip.Length)
	}
	return from, to, 0
}
