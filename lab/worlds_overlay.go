package lab

import (
	"fmt"
	"net/netip"
	"time"
)

// Branch is the path over one overlay node in a world of [Overlay].
type Branch struct {
	Name      string        // of the node's host
	Near, Far time.Duration // delay each way: client to node, and node to server
	Rate      int64         // of the link between client and node, in bit/s each way; 0 is unlimited
}

// Device is the name of the link between the client and the node, and of the client's device.
func (b Branch) Device() string { return "to-" + b.Name }

// NodeAddr is the client-side address of the node of branch i, from 0, in a world of [Overlay].
func NodeAddr(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 101, byte(i + 1), 1}) }

// Overlay has a client, a server, and between them an overlay node for each branch, on its own path:
//
//	                    +-----------+
//	      10.101.1.2 ===| one       |=== 10.100.1.2
//	     /    to-one    +-----------+    far-one   \
//	+--------+                                   +------+        +--------+
//	| client |                                   | core |--------| server |
//	+--------+                                   +------+        +--------+
//	     \              +-----------+              /         192.0.2.1
//	      10.101.2.2 ===| two       |=== 10.100.2.2
//	                    +-----------+
//
// Nodes forward packets too, so that plain TCP can use the same paths: the default route is over the first branch, and
// a socket bound to a device uses that one.
func Overlay(name string, branches ...Branch) World {
	w := World{Name: name, Client: "client", About: fmt.Sprintf("client and server with %d overlay nodes between them", len(branches)),
		Names: []NameSpec{{"server.example", ServerAddr}}}
	client, core := HostSpec{Name: "client"}, HostSpec{Name: "core", Router: true}
	for i, branch := range branches {
		near, far := fmt.Sprintf("10.101.%d.", i+1), fmt.Sprintf("10.100.%d.", i+1)
		w.Links = append(w.Links, LinkSpec{
			Name: branch.Device(),
			A:    End{"client", branch.Device(), prefixes(near + "2/24")},
			B:    End{branch.Name, "client", prefixes(near + "1/24")},
		}.Both(Shape{Delay: branch.Near, Rate: branch.Rate}), LinkSpec{
			Name: "far-" + branch.Name,
			A:    End{branch.Name, "core", prefixes(far + "1/24")},
			B:    End{"core", branch.Name, prefixes(far + "2/24")},
		}.Both(Shape{Delay: branch.Far}))
		all := netip.MustParsePrefix("0.0.0.0/0")
		client.Routes = append(client.Routes, Route{all, netip.MustParseAddr(near + "1"), branch.Device(), 100 * (i + 1)})
		w.Hosts = append(w.Hosts, HostSpec{Name: branch.Name, Router: true, Routes: []Route{{all, netip.MustParseAddr(far + "2"), "core", 0}}})
		core.Routes = append(core.Routes, Route{netip.MustParsePrefix(near + "0/24"), netip.MustParseAddr(far + "1"), branch.Name, 0})
	}
	w.Links = append(w.Links, LinkSpec{
		Name: "server",
		A:    End{"core", "server", prefixes("192.0.2.254/24")},
		B:    End{"server", "core", prefixes("192.0.2.1/24")},
	})
	server := HostSpec{Name: "server", Routes: []Route{{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParseAddr("192.0.2.254"), "core", 0}}}
	w.Hosts = append([]HostSpec{client, core, server}, w.Hosts...)
	return w
}
