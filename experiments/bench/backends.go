package bench

import (
	"net/netip"
	"time"

	"heddle/lab"
)

var (
	echoServer = netip.AddrPortFrom(lab.ServerAddr, 4444)
	// echoBeside is the same server on a port that is not split.
	echoBeside = netip.AddrPortFrom(lab.ServerAddr, 4445)
	echoRelay  = netip.MustParseAddrPort("127.0.0.1:4444")
)

// Backends compares the backends relay, kernel and route with no splitting, at a switching period of 100 ms over three
// paths. unlimited and limited measure the TCP throughput of the unmodified wireguard-go, over unlimited paths and
// paths of 20 Mbit/s. latency measures the round trip of small datagrams, at 1,000 a second.
func Backends() Bench {
	return Bench{
		name: "backends",
		topologies: func(quick bool) []*topology {
			if quick {
				return backendsTopologies(3*time.Second, time.Second, 2000)
			}
			return backendsTopologies(4*time.Second, time.Second, 8000)
		},
		paper: func(string) *float64 { return nil },
	}
}

func backendsTopologies(length, omit time.Duration, datagrams int) []*topology {
	var all []*topology
	for _, place := range []struct {
		name  string
		world lab.World
	}{{"unlimited", lab.ThreeWaysUnlimited()}, {"limited", lab.ThreeWays()}} {
		t := &tunnel{length: length, omit: omit}
		all = append(all, &topology{name: place.name, world: place.world, serve: t.serve, cases: []variant{
			t.variant("none", startPlain),
			t.variant("relay", startRelay),
			t.variant("kernel", startSplit(wireguardEndpoint, "--backend", "kernel")),
			t.variant("route", startSplit(wireguardEndpoint, "--backend", "route")),
		}})
	}
	e := &echoPair{datagrams: datagrams}
	return append(all, &topology{name: "latency", world: lab.ThreeWaysUnlimited(), serve: e.serve, cases: []variant{
		e.variant("none", echoServer, nil),
		e.variant("relay", echoRelay, []string{"--listen", echoRelay.String()}),
		e.variant("kernel", echoServer, []string{"--backend", "kernel"}),
		e.variant("route", echoServer, []string{"--backend", "route"}),
	}})
}
