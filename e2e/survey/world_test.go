package survey

import (
	"net/netip"
	"time"

	"heddle/lab"
)

// internet is a client with two uplinks, two transit networks that peer, a node in each and a slow one besides:
//
//	           198.18.1.0/24             198.18.11.0/24
//	         +---- home-gw -------------- transit1 ---- tokyo
//	         |     AS 64501               AS 64601 ==== oslo     === 10 ms each way
//	client --+                            |      \
//	         |     AS 64502               | peer  +---- core ---- server
//	         +---- lte-gw --------------- transit2 ---/   AS 64700, 192.0.2.0/24
//	           198.18.2.0/24              AS 64602 ---- paris
//	                                      198.18.12.0/24
func internet() lab.World {
	end := func(host, device, addr string) lab.End {
		return lab.End{Host: host, Device: device, Addrs: []netip.Prefix{netip.MustParsePrefix(addr)}}
	}
	slow := lab.Shape{Delay: 10 * time.Millisecond}
	return lab.World{
		Name: "internet", About: "two uplinks, two transits, three nodes", Client: "client",
		Hosts: []lab.HostSpec{
			{Name: "client", Routes: append(routes("home", "198.18.1.1", 100, "0.0.0.0/0"), routes("lte", "198.18.2.1", 200, "0.0.0.0/0")...)},
			{Name: "home-gw", Router: true, Routes: routes("up", "198.18.11.1", 0, "0.0.0.0/0")},
			{Name: "lte-gw", Router: true, Routes: routes("up", "198.18.12.1", 0, "0.0.0.0/0")},
			{Name: "transit1", Router: true, Routes: append(append(routes("home", "198.18.11.2", 0, "198.18.1.0/24"),
				routes("peer", "198.18.11.6", 0, "198.18.2.0/24", "198.18.12.0/24")...), routes("core", "198.18.11.18", 0, "192.0.2.0/24")...)},
			{Name: "transit2", Router: true, Routes: append(append(routes("lte", "198.18.12.2", 0, "198.18.2.0/24"),
				routes("peer", "198.18.11.5", 0, "198.18.1.0/24", "198.18.11.0/24")...), routes("core", "198.18.12.18", 0, "192.0.2.0/24")...)},
			{Name: "core", Router: true, Routes: append(routes("one", "198.18.11.17", 0, "198.18.11.0/24", "198.18.1.0/24"),
				routes("two", "198.18.12.17", 0, "198.18.12.0/24", "198.18.2.0/24")...)},
			{Name: "tokyo", Routes: routes("up", "198.18.11.9", 0, "0.0.0.0/0")},
			{Name: "oslo", Routes: routes("up", "198.18.11.13", 0, "0.0.0.0/0")},
			{Name: "paris", Routes: routes("up", "198.18.12.9", 0, "0.0.0.0/0")},
			{Name: "server", Routes: routes("up", "192.0.2.254", 0, "0.0.0.0/0")},
		},
		Links: []lab.LinkSpec{
			{Name: "home", A: end("client", "home", "198.18.1.2/24"), B: end("home-gw", "client", "198.18.1.1/24")},
			{Name: "lte", A: end("client", "lte", "198.18.2.2/24"), B: end("lte-gw", "client", "198.18.2.1/24")},
			{Name: "home-transit", A: end("home-gw", "up", "198.18.11.2/30"), B: end("transit1", "home", "198.18.11.1/30")},
			{Name: "lte-transit", A: end("lte-gw", "up", "198.18.12.2/30"), B: end("transit2", "lte", "198.18.12.1/30")},
			{Name: "peer", A: end("transit1", "peer", "198.18.11.5/30"), B: end("transit2", "peer", "198.18.11.6/30")},
			{Name: "tokyo", A: end("transit1", "tokyo", "198.18.11.9/30"), B: end("tokyo", "up", "198.18.11.10/30")},
			{Name: "oslo", A: end("transit1", "oslo", "198.18.11.13/30"), B: end("oslo", "up", "198.18.11.14/30"), AtoB: slow, BtoA: slow},
			{Name: "paris", A: end("transit2", "paris", "198.18.12.9/30"), B: end("paris", "up", "198.18.12.10/30")},
			{Name: "core-one", A: end("transit1", "core", "198.18.11.17/30"), B: end("core", "one", "198.18.11.18/30")},
			{Name: "core-two", A: end("transit2", "core", "198.18.12.17/30"), B: end("core", "two", "198.18.12.18/30")},
			{Name: "server", A: end("core", "server", "192.0.2.254/24"), B: end("server", "up", "192.0.2.1/24")},
		},
	}
}

func routes(device, via string, metric int, to ...string) (all []lab.Route) {
	for _, t := range to {
		all = append(all, lab.Route{To: netip.MustParsePrefix(t), Via: netip.MustParseAddr(via), Device: device, Metric: metric})
	}
	return all
}

// networks is the table of ASes of that Internet.
const networks = `198.18.1.0,198.18.1.255,64501,Home
198.18.2.0,198.18.2.255,64502,Mobile
198.18.11.0,198.18.11.255,64601,First Transit
198.18.12.0,198.18.12.255,64602,Second Transit
192.0.2.0,192.0.2.255,64700,Destination
`
