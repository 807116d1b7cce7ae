package bench

import (
	"context"
	"net/netip"
	"time"

	"heddle/lab"
	"heddle/lab/peer"
)

// planesEvery is the switching period of all planes: the default.
const planesEvery = "100ms"

var (
	echoServer = netip.AddrPortFrom(lab.ServerAddr, 4444)
	// echoBeside is the same server on a port that no session splits.
	echoBeside = netip.AddrPortFrom(lab.ServerAddr, 4445)
	echoRelay  = netip.MustParseAddrPort("127.0.0.1:4444")
)

// Planes compares what decides the path: the relay, the kernel and the route, at a switching period of 100 ms over three
// paths, relative to no splitting. In unlimited and limited it is the TCP throughput of the unmodified wireguard-go,
// over paths without limit and of 20 Mbit/s; in latency it is the time that a small datagram takes to the server and
// back, at 1,000 a second.
func Planes() Bench {
	return Bench{
		name: "planes",
		topologies: func(quick bool) []*topology {
			if quick {
				return planesTopologies(3*time.Second, time.Second, 2000)
			}
			return planesTopologies(4*time.Second, time.Second, 8000)
		},
		paper: func(string) *float64 { return nil },
	}
}

func planesTopologies(length, omit time.Duration, datagrams int) []*topology {
	var all []*topology
	for _, place := range []struct {
		name  string
		world lab.World
	}{{"unlimited", lab.ThreeWaysUnlimited()}, {"limited", lab.ThreeWays()}} {
		t := &tunnel{length: length, omit: omit}
		all = append(all, &topology{name: place.name, world: place.world, serve: t.serve, cases: []variant{
			t.variant("none", startPlain),
			t.variant("relay", startRelay),
			t.variant("kernel", startBelow("kernel")),
			t.variant("route", startBelow("route")),
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

// startBelow runs the unmodified wireguard-go straight to the server, below it a plane that splits what it sends.
func startBelow(plane string) wireguardClient {
	return func(ctx context.Context, s *stage, t *tunnel, seed int) ([]*peer.Process, error) {
		below, err := startSplit(ctx, s, wireguardEndpoint, seed, "--backend", plane)
		if err != nil {
			return nil, err
		}
		plain, err := t.Client(ctx, s.Host("client"), wireguardEndpoint)
		if err != nil {
			below.Stop()
			return nil, err
		}
		return []*peer.Process{plain, below}, nil
	}
}

// startSplit runs `heddle split` over all ways, and waits until it says so.
func startSplit(ctx context.Context, s *stage, to netip.AddrPort, seed int, args ...string) (*peer.Process, error) {
	args = append(append([]string{"split", "--to", to.String()}, split(planesEvery, lab.Ways, seed)...), args...)
	p, err := s.start(ctx, args...)
	if err != nil {
		return nil, err
	}
	if err := p.AwaitLog(ctx, "over 3 paths"); err != nil {
		p.Stop()
		return nil, err
	}
	return p, nil
}
