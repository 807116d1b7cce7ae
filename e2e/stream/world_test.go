package stream

import (
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"heddle/lab"
	"heddle/lab/labtest"
	"heddle/lab/peer"
)

func TestMain(m *testing.M) { labtest.Main(m) }

var streamAt = netip.AddrPortFrom(lab.ServerAddr, peer.StreamPort)

// nodes are the overlay nodes, each with the uplink of the client that leads to it.
var nodes = []struct {
	name, uplink, path string
	delay              time.Duration
}{
	{"n1", "home", "a", 5 * time.Millisecond},
	{"n2", "lte", "b", 15 * time.Millisecond},
	{"n3", "home", "c", 10 * time.Millisecond},
}

// overlay is
//
//	          home  +------+----| n1 |----+
//	     ,----------| isp1 |              |
//	+--------+      +------+----| n3 |----+------+   +--------+
//	| client |                            | core |---| server |
//	+--------+      +------+              +------+   +--------+
//	     '----------| isp2 |----| n2 |----+          192.0.2.1
//	          lte   +------+
//
// where what is between an isp and a node has 15 Mbit/s. The core knows no way to the client, so that nothing goes but
// by the nodes.
func overlay() lab.World {
	prefix := func(text string) []netip.Prefix { return []netip.Prefix{netip.MustParsePrefix(text)} }
	route := func(to, via, device string, metric int) lab.Route {
		return lab.Route{To: netip.MustParsePrefix(to), Via: netip.MustParseAddr(via), Device: device, Metric: metric}
	}
	const everywhere = "0.0.0.0/0"
	w := lab.World{Name: "stream", About: "client with two uplinks, three overlay nodes, server", Client: "client", Hosts: []lab.HostSpec{
		{Name: "client", Routes: []lab.Route{route(everywhere, "10.1.0.1", "home", 100), route(everywhere, "10.2.0.1", "lte", 200)}},
		{Name: "isp1", Router: true}, {Name: "isp2", Router: true}, {Name: "core", Router: true},
		{Name: "server", Routes: []lab.Route{route(everywhere, "192.0.2.254", "core", 0)}},
	}, Links: []lab.LinkSpec{
		{Name: "home", A: lab.End{Host: "client", Device: "home", Addrs: prefix("10.1.0.2/24")}, B: lab.End{Host: "isp1", Device: "client", Addrs: prefix("10.1.0.1/24")}},
		{Name: "lte", A: lab.End{Host: "client", Device: "lte", Addrs: prefix("10.2.0.2/24")}, B: lab.End{Host: "isp2", Device: "client", Addrs: prefix("10.2.0.1/24")}},
		{Name: "server", A: lab.End{Host: "core", Device: "server", Addrs: prefix("192.0.2.254/24")}, B: lab.End{Host: "server", Device: "core", Addrs: prefix("192.0.2.1/24")}},
	}}
	for i, n := range nodes {
		isp, access := "isp1", "10.1.0.0/24"
		if n.uplink == "lte" {
			isp, access = "isp2", "10.2.0.0/24"
		}
		front, back := fmt.Sprintf("10.1%d.0.", i+1), fmt.Sprintf("10.2%d.0.", i+1)
		w.Hosts = append(w.Hosts, lab.HostSpec{Name: n.name, Routes: []lab.Route{route(access, front+"1", "front", 0), route(everywhere, back+"1", "back", 0)}})
		w.Links = append(w.Links,
			lab.LinkSpec{Name: n.name, A: lab.End{Host: isp, Device: n.name, Addrs: prefix(front + "1/24")},
				B: lab.End{Host: n.name, Device: "front", Addrs: prefix(front + "2/24")}}.Both(lab.Shape{Delay: n.delay, Rate: 15_000_000}),
			lab.LinkSpec{Name: n.name + "-core", A: lab.End{Host: n.name, Device: "back", Addrs: prefix(back + "2/24")},
				B: lab.End{Host: "core", Device: n.name, Addrs: prefix(back + "1/24")}})
	}
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
	t.Parallel()
	w := &world{labtest.UpOverlay(t, overlay()), t, map[string]*peer.Process{}}
	for i, n := range nodes {
		w.node[n.name] = w.Node(n.name)
		w.Pass(n.name, n.name, netip.AddrFrom4([4]byte{10, byte(11 + i), 0, 2}), "--to", streamAt.String())
	}
	return w
}

// to is a command at the client with the flags for a stream to the server over all nodes, each by its uplink.
func (w *world) to(command ...string) []string {
	command = append(command, "--to", streamAt.String(), "--key", w.Key("server"), "--path", "home=if:home", "--path", "lte=if:lte")
	for _, n := range nodes {
		command = append(command, "--via", n.path+"=node:"+n.name+"@"+n.uplink)
	}
	return command
}

// slowly leaves what is between the isps and the nodes 3 Mbit/s, so that a test has time to do something in the middle of a
// transfer, also where the machine is busy.
func (w *world) slowly() {
	w.t.Helper()
	for _, n := range nodes {
		if err := w.Link(n.name).Reshape(func(s *lab.Shape) { *s = lab.Shape{Delay: n.delay, Rate: 3_000_000} }); err != nil {
			w.t.Fatal(err)
		}
	}
}

// seen is what an observer between an isp and a node saw: bytes of TCP payload from the client's side and to it, each
// counted once, however often a busy machine had TCP send it.
type seen struct{ up, down int }

// stream marks the bytes of one direction of a TCP connection that were seen, by their sequence numbers.
type stream struct {
	first uint32
	had   []bool
}

// take gives how many of the bytes are new.
func (s *stream) take(seq uint32, length int) (fresh int) {
	from := int(int32(seq - s.first))
	for i := max(from, 0); i < from+length; i++ {
		if i >= len(s.had) {
			s.had = append(s.had, make([]bool, i-len(s.had)+1<<16)...)
		}
		if !s.had[i] {
			s.had[i] = true
			fresh++
		}
	}
	return fresh
}

// watch captures on the way to each node until stop, which gives what was seen by the name of the path.
func (w *world) watch() (stop func() map[string]seen) {
	w.t.Helper()
	var places []string
	for _, n := range nodes {
		places = append(places, n.name+"/front")
	}
	stopped := labtest.Watch(w.t, w.Instance, places...)
	return func() map[string]seen {
		w.t.Helper()
		all, packets := map[string]seen{}, stopped()
		for _, n := range nodes {
			var s seen
			streams := map[[2]gopacket.Flow]*stream{}
			for _, p := range packets[n.name+"/front"] {
				ip, isIP := p.NetworkLayer().(*layers.IPv4)
				tcp, isTCP := p.TransportLayer().(*layers.TCP)
				if !isIP || !isTCP {
					continue
				}
				key := [2]gopacket.Flow{ip.NetworkFlow(), tcp.TransportFlow()}
				if streams[key] == nil {
					streams[key] = &stream{first: tcp.Seq}
				}
				bytes := streams[key].take(tcp.Seq, int(ip.Length)-4*int(ip.IHL)-4*int(tcp.DataOffset))
				if tcp.DstPort == peer.NodePort {
					s.up += bytes
				} else {
					s.down += bytes
				}
			}
			all[n.path] = s
		}
		return all
	}
}

// tool runs a program of the machine in a host.
func (w *world) tool(host, name string, args ...string) (string, error) {
	w.t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		w.t.Skipf("%v: %s", peer.ErrMissing, name)
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), 2*time.Minute)
	defer cancel()
	out, err := w.Host(host).Command(ctx, name, args...).CombinedOutput()
	return string(out), err
}
