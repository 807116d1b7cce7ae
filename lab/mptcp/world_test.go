package mptcp

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"

	"heddle/lab"
	"heddle/lab/labtest"
	"heddle/lab/peer"
)

func TestMain(m *testing.M) { labtest.Main(m) }

const nodes = 3

var clientAddrs = []string{"10.1.0.2", "10.1.0.3", "10.1.0.4"}

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
// where what is between the isp and a node has 40 Mbit/s and 5 ms.
func overlay() lab.World {
	w := lab.World{Name: "mptcp", About: "client with one uplink, three nodes, server", Client: "client"}
	prefixes := func(list ...string) (all []netip.Prefix) {
		for _, text := range list {
			all = append(all, netip.MustParsePrefix(text))
		}
		return all
	}
	route := func(to, via, device string) lab.Route {
		return lab.Route{To: netip.MustParsePrefix(to), Via: netip.MustParseAddr(via), Device: device}
	}
	client := lab.HostSpec{Name: "client", Routes: []lab.Route{route("0.0.0.0/0", "10.1.0.1", "uplink")}}
	isp, core := lab.HostSpec{Name: "isp", Router: true}, lab.HostSpec{Name: "core", Router: true}
	w.Links = append(w.Links,
		lab.LinkSpec{Name: "uplink", A: lab.End{Host: "client", Device: "uplink", Addrs: prefixes("10.1.0.2/24", "10.1.0.3/24", "10.1.0.4/24")},
			B: lab.End{Host: "isp", Device: "client", Addrs: prefixes("10.1.0.1/24")}},
		lab.LinkSpec{Name: "server", A: lab.End{Host: "core", Device: "server", Addrs: prefixes("192.0.2.254/24")},
			B: lab.End{Host: "server", Device: "core", Addrs: prefixes("192.0.2.1/24")}})
	var all []lab.HostSpec
	for n := 1; n <= nodes; n++ {
		name, front, back := fmt.Sprintf("n%d", n), fmt.Sprintf("10.2.%d.", n), fmt.Sprintf("10.3.%d.", n)
		w.Links = append(w.Links,
			lab.LinkSpec{Name: name, A: lab.End{Host: "isp", Device: name, Addrs: prefixes(front + "1/24")},
				B: lab.End{Host: name, Device: "front", Addrs: prefixes(front + "2/24")}}.Both(lab.Shape{Delay: 5 * time.Millisecond, Rate: 40_000_000}),
			lab.LinkSpec{Name: name + "-core", A: lab.End{Host: name, Device: "back", Addrs: prefixes(back + "2/24")},
				B: lab.End{Host: "core", Device: name, Addrs: prefixes(back + "1/24")}})
		all = append(all, lab.HostSpec{Name: name, Routes: []lab.Route{route("10.1.0.0/24", front+"1", "front"), route("0.0.0.0/0", back+"1", "back")}})
	}
	w.Hosts = append(append(w.Hosts, client, isp, core, lab.HostSpec{Name: "server", Routes: []lab.Route{route("0.0.0.0/0", "192.0.2.254", "core")}}), all...)
	return w
}

// world is the overlay with nodes that run, and passes for the client.
type world struct {
	labtest.Overlay
	t    *testing.T
	node map[string]*peer.Process
}

func newWorld(t *testing.T) *world {
	t.Helper()
	if _, err := os.Stat("/proc/sys/net/mptcp/pm_type"); err != nil {
		t.Skipf("this kernel has no MPTCP with a path manager in user space: %v", err)
	}
	w := &world{labtest.UpOverlay(t, overlay()), t, map[string]*peer.Process{}}
	for n := 1; n <= nodes; n++ {
		w.startNode(fmt.Sprintf("n%d", n))
		w.grant(n, "1h")
	}
	return w
}

// grant gives the client a pass for a node.
func (w *world) grant(n int, until string) {
	w.t.Helper()
	name := fmt.Sprintf("n%d", n)
	w.Pass(name, name, netip.AddrFrom4([4]byte{10, 2, byte(n), 2}), "--until", until, "--mode", "nat", "--to", "192.0.2.0/24")
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
	at := netip.AddrPortFrom(lab.ServerAddr, peer.StreamPort)
	w.StreamServer("server", at, "stream", "serve", "--plane", "mptcp", "--name", "sums", "--to", "127.0.0.1:9000")
	return w.StreamDial("sums", netip.MustParseAddrPort("127.0.0.1:2222"), "server", at, append([]string{"--set-path-manager", "--warm", "0"}, args...)...)
}

// program's connection, made in the client.
func (w *world) connect() (c *net.TCPConn) {
	w.t.Helper()
	err := w.Host("client").Do(func() error {
		plain, err := net.DialTimeout("tcp", "127.0.0.1:2222", 5*time.Second)
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
			ip, ok := p.NetworkLayer().(*layers.IPv4)
			tcp, ok2 := p.TransportLayer().(*layers.TCP)
			if !ok || !ok2 || tcp.SrcPort == peer.NodePort || tcp.DstPort == peer.NodePort { // control
				continue
			}
			n := int(ip.Length) - 4*int(ip.IHL) - 4*int(tcp.DataOffset)
			seen.bytes[[2]string{ip.SrcIP.String(), ip.DstIP.String()}] += n
			seen.total += n
			seen.sizes = append(seen.sizes, sized{at, n})
		}
		return seen
	}
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
