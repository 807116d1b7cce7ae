package mptcp

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"

	"heddle/internal/polltest"
	"heddle/lab"
	"heddle/lab/labtest"
	"heddle/lab/peer"
)

func TestMain(m *testing.M) { labtest.Main(m) }

const nodes = 3

// family is one of the two in which the overlay has addresses.
type family struct {
	bits            int          // of a network's prefix
	everywhere      netip.Prefix // all addresses
	server, gateway netip.Addr   // and who leads out of the server's network
}

var (
	ipv4 = family{24, netip.MustParsePrefix("0.0.0.0/0"), lab.ServerAddr, netip.MustParseAddr("192.0.2.254")}
	ipv6 = family{64, netip.MustParsePrefix("::/0"), lab.ServerAddr6, netip.MustParseAddr("2001:db8:2::fe")}
)

// addr is that of a host in one of the networks: 1.0 is the client's, 2.N the one before node N, and 3.N the one behind it.
func (f family) addr(net, n, host int) netip.Addr {
	if f.bits == 64 {
		return netip.AddrFrom16([16]byte{0xfd, 3: byte(net), 5: byte(n), 15: byte(host)})
	}
	return netip.AddrFrom4([4]byte{10, byte(net), byte(n), byte(host)})
}

func (f family) node(n int) netip.Addr { return f.addr(2, n, 2) }

// clients are the client's addresses.
func (f family) clients() []netip.Addr {
	return []netip.Addr{f.addr(1, 0, 2), f.addr(1, 0, 3), f.addr(1, 0, 4)}
}

// overlay is
//
//	                        n1   +----+
//	                   ,---------| n1 |---------.
//	+--------+   +-----+    n2   +----+         +------+   +--------+
//	| client |---| isp |---------| n2 |---------| core |---| server |
//	+--------+   +-----+         +----+         +------+   +--------+
//	  10.1.0.2         `---------| n3 |---------'  |        192.0.2.1
//	  .3 .4                 n3   +----+            (no way back to the client)
//
// where what is between the isp and a node has 40 Mbit/s and 5 ms. All have addresses of IPv6 too.
func overlay() lab.World {
	w := lab.World{Name: "mptcp", About: "client with one uplink, three nodes, server", Client: "client"}
	end := func(host, device string, addrs func(family) []netip.Addr) lab.End {
		e := lab.End{Host: host, Device: device}
		for _, f := range []family{ipv4, ipv6} {
			for _, a := range addrs(f) {
				e.Addrs = append(e.Addrs, netip.PrefixFrom(a, f.bits))
			}
		}
		return e
	}
	at := func(net, n, host int) func(family) []netip.Addr {
		return func(f family) []netip.Addr { return []netip.Addr{f.addr(net, n, host)} }
	}
	w.Links = append(w.Links,
		lab.LinkSpec{Name: "uplink", A: end("client", "uplink", family.clients), B: end("isp", "client", at(1, 0, 1))},
		lab.LinkSpec{Name: "server", A: end("core", "server", func(f family) []netip.Addr { return []netip.Addr{f.gateway} }),
			B: end("server", "core", func(f family) []netip.Addr { return []netip.Addr{f.server} })})
	client, server := lab.HostSpec{Name: "client"}, lab.HostSpec{Name: "server"}
	for _, f := range []family{ipv4, ipv6} {
		client.Routes = append(client.Routes, lab.Route{To: f.everywhere, Via: f.addr(1, 0, 1), Device: "uplink"})
		server.Routes = append(server.Routes, lab.Route{To: f.everywhere, Via: f.gateway, Device: "core"})
	}
	w.Hosts = append(w.Hosts, client, lab.HostSpec{Name: "isp", Router: true}, lab.HostSpec{Name: "core", Router: true}, server)
	for n := 1; n <= nodes; n++ {
		node := lab.HostSpec{Name: fmt.Sprintf("n%d", n)}
		for _, f := range []family{ipv4, ipv6} {
			node.Routes = append(node.Routes, lab.Route{To: netip.PrefixFrom(f.addr(1, 0, 0), f.bits), Via: f.addr(2, n, 1), Device: "front"},
				lab.Route{To: f.everywhere, Via: f.addr(3, n, 1), Device: "back"})
		}
		w.Hosts = append(w.Hosts, node)
		w.Links = append(w.Links,
			lab.LinkSpec{Name: node.Name, A: end("isp", node.Name, at(2, n, 1)), B: end(node.Name, "front", at(2, n, 2))}.
				Both(lab.Shape{Delay: 5 * time.Millisecond, Rate: 40_000_000}),
			lab.LinkSpec{Name: node.Name + "-core", A: end(node.Name, "back", at(3, n, 2)), B: end("core", node.Name, at(3, n, 1))})
	}
	return w
}

// world is the overlay with nodes that run, and passes for the client.
type world struct {
	labtest.Overlay
	t      *testing.T
	family family // of what is used of it
	node   map[string]*peer.Process
}

func newWorld(t *testing.T, f family) *world {
	t.Helper()
	if _, err := os.Stat("/proc/sys/net/mptcp/pm_type"); err != nil {
		t.Skipf("this kernel has no MPTCP with a path manager in user space: %v", err)
	}
	w := &world{labtest.UpOverlay(t, overlay()), t, f, map[string]*peer.Process{}}
	for n := 1; n <= nodes; n++ {
		w.startNode(fmt.Sprintf("n%d", n))
		w.grant(n)
	}
	return w
}

// grant gives the client a pass for a node.
func (w *world) grant(n int) {
	w.t.Helper()
	name := fmt.Sprintf("n%d", n)
	w.Pass(name, name, w.family.node(n), "--mode", "nat", "--to", netip.AddrPortFrom(w.family.server, peer.StreamPort).String())
}

func (w *world) startNode(host string) {
	w.t.Helper()
	w.node[host] = w.Node(host, "--mode", "nat", "--set-forwarding", "--drain", "0s")
}

// program is what is served: it sends back as many bytes as it got, once it got all of them.
func (w *world) program() {
	w.t.Helper()
	err := w.Host("server").Do(func() error {
		l, err := net.Listen("tcp", "127.0.0.1:9000")
		if err != nil {
			return err
		}
		w.t.Cleanup(func() { l.Close() })
		go serveSums(l)
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// stream starts both ends of a stream, and gives the client's.
func (w *world) stream(args ...string) *peer.Process {
	w.t.Helper()
	w.program()
	at := netip.AddrPortFrom(w.family.server, peer.StreamPort)
	w.StreamServer("server", at, "stream", "serve", "--backend", "mptcp", "--name", "sums", "--to", "127.0.0.1:9000")
	return w.dial(at, append([]string{"--warm", "0"}, args...)...)
}

// dial starts the client's end of a stream.
func (w *world) dial(at netip.AddrPort, args ...string) (p *peer.Process) {
	w.t.Helper()
	polltest.Again(w.t, func(int) (err error) { // a busy machine may make no connection within the patience
		p, err = w.Overlay.Overlay.StreamDial(w.t.Context(), "sums", netip.MustParseAddrPort("127.0.0.1:2222"), "server", at, append([]string{"--set-path-manager"}, args...)...)
		if err != nil && !strings.Contains(err.Error(), "i/o timeout") {
			w.t.Fatal(err)
		}
		return err
	})
	return p
}

// program's connection, made in the client.
func (w *world) connect() (c *net.TCPConn) {
	w.t.Helper()
	err := w.Host("client").Do(func() error {
		plain, err := net.DialTimeout("tcp", "127.0.0.1:2222", 30*time.Second)
		if err == nil {
			c = plain.(*net.TCPConn)
		}
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { c.Close() })
	return c
}

// watch counts the bytes of TCP payload up and down that cross a device, until stop. Others than here and there do not.
func (w *world) watch(host, device string) (stop func() traffic) {
	w.t.Helper()
	place := host + "/" + device
	stopped := labtest.Watch(w.t, w.Instance, place)
	return func() traffic {
		w.t.Helper()
		seen := traffic{bytes: map[[2]string]int{}}
		for at, p := range stopped()[place] {
			tcp, ok := p.TransportLayer().(*layers.TCP)
			if !ok || tcp.SrcPort == peer.NodePort || tcp.DstPort == peer.NodePort { // control
				continue
			}
			from, to := p.NetworkLayer().NetworkFlow().Endpoints()
			n := len(tcp.Payload)
			seen.bytes[[2]string{from.String(), to.String()}] += n
			seen.total += n
			seen.sizes = append(seen.sizes, sized{at, n})
		}
		return seen
	}
}

// state is what Heddle and the kernels know of the streams, for the log of a test that failed.
func (w *world) state() string {
	var all strings.Builder
	for _, host := range []string{"client", "server"} {
		status, _, err := w.Try(host, "", "status", "--json")
		fmt.Fprintf(&all, "%s: status: %v\n%s\n", host, err, status)
		for _, flags := range []string{"-tanieo", "-Manieo"} {
			out, err := w.Host(host).Command(w.t.Context(), "ss", flags).CombinedOutput()
			fmt.Fprintf(&all, "%s: ss %s: %v\n%s\n", host, flags, err, out)
		}
	}
	return all.String() + w.rules("n1")
}

// traffic is what crossed a device.
type traffic struct {
	bytes map[[2]string]int // of payload, from and to
	total int
	sizes []sized
}

type sized struct {
	at    time.Time
	bytes int
}

// since counts from a moment on, and gives when the last payload was seen.
func (t traffic) since(moment time.Time) (bytes int, last time.Time) {
	for _, p := range t.sizes {
		if p.bytes > 0 && p.at.After(moment) {
			bytes, last = bytes+p.bytes, p.at
		}
	}
	return bytes, last
}

// rules are the leases that a host's kernel holds.
func (w *world) rules(host string) string {
	w.t.Helper()
	if _, err := exec.LookPath("nft"); err != nil {
		w.t.Skipf("nftables is not on this machine: %v", err)
	}
	out, err := w.Host(host).Command(w.t.Context(), "nft", "list", "ruleset").CombinedOutput()
	if err != nil {
		w.t.Fatalf("nft: %v\n%s", err, out)
	}
	return string(out)
}
