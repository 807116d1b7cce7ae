package lab

import (
	"fmt"
	"net/netip"
	"time"
)

// Worlds lists the worlds that `heddle lab up` knows by name.
func Worlds() []World {
	return []World{ThreeWays(), ThreeWaysUnequal(), ThreeWaysUnlimited(), ThreeWaysOneExit(), ThreeWaysShared(), Pair(),
		Tor("tor", DSL(85*time.Millisecond)), Tor("tor-450ms", DSL(450*time.Millisecond))}
}

// Ways are the access networks of the client in [ThreeWays]: names of links and of the client's devices.
var Ways = []string{"home", "lte", "office"}

// Addresses of the hosts in [ThreeWays].
var (
	ServerAddr  = netip.MustParseAddr("192.0.2.1")
	ServerAddr6 = netip.MustParseAddr("2001:db8:2::1")
	WebAddr     = netip.MustParseAddr("198.51.100.2")
	WebAddr6    = netip.MustParseAddr("2001:db8:51::2")
)

// ThreeWays has a client with three access networks of 20 Mbit/s and 10 ms each way, a server, and a web host that
// only the server can reach:
//
//	                 home    +---------+ core
//	       10.101.1.2 =======| home-gw |------+
//	      /                  +---------+      |
//	+--------+       lte     +---------+   +------+        +--------+         +-----+
//	| client | 10.101.2.2 ===| lte-gw  |---| core |--------| server |---------| web |
//	+--------+               +---------+   +------+        +--------+         +-----+
//	      \          office  +---------+      |       192.0.2.1  198.51.100.1   198.51.100.2
//	       10.101.3.2 =======| office- |------+
//	                         |   gw    |            === emulated    --- veth
//	                         +---------+
//
// Access network N is 10.101.N.0/24 and 2001:db8:101:N::/64, with the client at .2 and its router at .1; routers reach
// core over 10.100.N.0/24 and 2001:db8:100:N::/64. The client has a default route over each access network, with
// metrics 100, 200 and 300, so that a socket bound to a device can use it. Core has no route to the web host.
func ThreeWays() World {
	w := threeWays("threeways", [3]Shape{access(10), access(10), access(10)})
	w.About = "client with three access networks of 20 Mbit/s and 10 ms; server; web host behind the server"
	return w
}

// ThreeWaysUnequal is [ThreeWays] with delays of 10, 15 and 25 ms.
func ThreeWaysUnequal() World {
	w := threeWays("threeways-unequal", [3]Shape{access(10), access(15), access(25)})
	w.About = "threeways with 10, 15 and 25 ms"
	return w
}

// ThreeWaysUnlimited is [ThreeWays] with veth pairs for access networks.
func ThreeWaysUnlimited() World {
	w := threeWays("threeways-unlimited", [3]Shape{})
	w.About = "threeways without delay or limit"
	return w
}

// ThreeWaysOneExit is [ThreeWays] with NAT at core: the server sees the client at 192.0.2.254 over every path, with a
// port for each. It models paths through one VPN provider with several entries and one exit.
func ThreeWaysOneExit() World {
	w := threeWays("threeways-one-exit", [3]Shape{access(10), access(10), access(10)})
	w.About = "threeways whose server sees one address whichever way is taken"
	for i := range w.Hosts {
		if w.Hosts[i].Name == "core" {
			w.Hosts[i].Masquerade = "server"
		}
	}
	return w
}

// ThreeWaysShared is [ThreeWays] with one bottleneck for all ways: the server sends at most 18 Mbit/s, and each access
// network carries 50 Mbit/s. One path has the full rate, so that several paths gain nothing from each other's queues.
func ThreeWaysShared() World {
	wide := Shape{Delay: 10 * time.Millisecond, Rate: 50_000_000}
	w := threeWays("threeways-shared", [3]Shape{wide, wide, wide})
	w.About = "threeways of 50 Mbit/s, and a server that sends at most 18 Mbit/s"
	for i := range w.Links {
		if w.Links[i].Name == "server" {
			w.Links[i].BtoA = Shape{Rate: 18_000_000} // the server is end B
		}
	}
	return w
}

func access(ms int) Shape {
	return Shape{Delay: time.Duration(ms) * time.Millisecond, Rate: 20_000_000}
}

func threeWays(name string, shapes [3]Shape) World {
	w := World{Name: name, Client: "client", Names: []NameSpec{
		{"server.example", ServerAddr}, {"server.example", ServerAddr6},
		{"web.example", WebAddr}, {"web.example", WebAddr6},
	}}
	client := HostSpec{Name: "client"}
	core := HostSpec{Name: "core", Router: true}
	var gateways []HostSpec
	for i, way := range Ways {
		n := i + 1
		access4, access6 := fmt.Sprintf("10.101.%d.", n), fmt.Sprintf("2001:db8:101:%d::", n)
		back4, back6 := fmt.Sprintf("10.100.%d.", n), fmt.Sprintf("2001:db8:100:%d::", n)
		w.Links = append(w.Links, LinkSpec{
			Name: way,
			A:    End{"client", way, prefixes(access4+"2/24", access6+"2/64")},
			B:    End{way + "-gw", "client", prefixes(access4+"1/24", access6+"1/64")},
		}.Both(shapes[i]), LinkSpec{
			Name: way + "-core",
			A:    End{way + "-gw", "core", prefixes(back4+"1/24", back6+"1/64")},
			B:    End{"core", way, prefixes(back4+"2/24", back6+"2/64")},
		})
		client.Routes = append(client.Routes, defaults(access4+"1", access6+"1", way, n*100)...)
		gateways = append(gateways, HostSpec{Name: way + "-gw", Router: true, Routes: defaults(back4+"2", back6+"2", "core", 0)})
		core.Routes = append(core.Routes,
			Route{netip.MustParsePrefix(access4 + "0/24"), netip.MustParseAddr(back4 + "1"), way, 0},
			Route{netip.MustParsePrefix(access6 + "/64"), netip.MustParseAddr(back6 + "1"), way, 0})
	}
	w.Links = append(w.Links, LinkSpec{
		Name: "server",
		A:    End{"core", "server", prefixes("192.0.2.254/24", "2001:db8:2::fe/64")},
		B:    End{"server", "core", prefixes("192.0.2.1/24", "2001:db8:2::1/64")},
	}, LinkSpec{
		Name: "web",
		A:    End{"server", "web", prefixes("198.51.100.1/24", "2001:db8:51::1/64")},
		B:    End{"web", "server", prefixes("198.51.100.2/24", "2001:db8:51::2/64")},
	})
	w.Hosts = append([]HostSpec{client}, gateways...)
	w.Hosts = append(w.Hosts, core,
		HostSpec{Name: "server", Router: true, Routes: defaults("192.0.2.254", "2001:db8:2::fe", "core", 0)},
		HostSpec{Name: "web", Routes: defaults("198.51.100.1", "2001:db8:51::1", "server", 0)})
	return w
}

// Pair is the smallest world with an emulated link:
//
//	+---+ link                link +---+
//	| a |==========================| b |   10 Mbit/s, 5 ms
//	+---+ 10.0.0.1        10.0.0.2 +---+
func Pair() World {
	return World{
		Name: "pair", About: "two hosts and one link of 10 Mbit/s and 5 ms",
		Hosts: []HostSpec{{Name: "a"}, {Name: "b"}},
		Names: []NameSpec{{"a.example", netip.MustParseAddr("10.0.0.1")}, {"b.example", netip.MustParseAddr("10.0.0.2")}},
		Links: []LinkSpec{LinkSpec{
			Name: "link",
			A:    End{"a", "link", prefixes("10.0.0.1/24", "fd00::1/64")},
			B:    End{"b", "link", prefixes("10.0.0.2/24", "fd00::2/64")},
		}.Both(Shape{Rate: 10_000_000, Delay: 5 * time.Millisecond})},
	}
}

func prefixes(list ...string) []netip.Prefix {
	var all []netip.Prefix
	for _, s := range list {
		all = append(all, netip.MustParsePrefix(s))
	}
	return all
}

// defaults returns the default routes of both families.
func defaults(via4, via6, device string, metric int) []Route {
	return []Route{
		{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParseAddr(via4), device, metric},
		{netip.MustParsePrefix("::/0"), netip.MustParseAddr(via6), device, metric},
	}
}
