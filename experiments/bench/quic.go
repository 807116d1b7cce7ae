package bench

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"time"

	"heddle/lab"
	"heddle/lab/peer"
)

// paperQUIC is the throughput at a switching period of 100 ms relative to none: "10-20%" less at reasonable
// frequencies, CoMPS, section 6; the middle of it. Its paths had an address each.
const paperQUIC = 0.85

var (
	quicServer = netip.AddrPortFrom(lab.ServerAddr, 4433)
	quicRelay  = netip.MustParseAddrPort("127.0.0.1:4433")
)

// QUIC is figure 8(b) and (c) of CoMPS: goodput of HTTP/3 down and up through `heddle split`, against the switching
// period, over three paths, relative to no switching. The client is quic-go; the servers are quic-go, aioquic and
// quiche, with their library's defaults. In distinct each path has an address of its own; in one-exit the server sees
// one address, and a port for each path; in exit all paths lead to one proxy, and in tunnel the session goes through
// `heddle up`: the server sees one address and one port.
func QUIC() Bench {
	return Bench{
		name: "quic",
		topologies: func(quick bool) []*topology {
			if quick {
				return quicTopologies([]string{"none", "100ms"}, nil, 1500*time.Millisecond, 500*time.Millisecond)
			}
			periods := []string{"none", "500ms", "200ms", "100ms", "50ms", "40ms", "30ms", "20ms", "10ms"}
			return append(quicTopologies(periods, []string{"100ms", "10ms"}, 4*time.Second, time.Second), quicAids("100ms", 4*time.Second, time.Second)...)
		},
		paper: func(name string) *float64 {
			if !strings.HasPrefix(name, "distinct/") || !strings.Contains(name, "/100ms/") {
				return nil
			}
			paper := paperQUIC
			return &paper
		},
	}
}

// quicSession is the server of one topology, and how long each direction is measured; omit comes on top.
type quicSession struct {
	*peer.QUIC
	library      string
	length, omit time.Duration
}

// quicTopologies are all places with all servers. With what arrives put in order too, a case is called PERIOD-reorder.
func quicTopologies(periods, reordered []string, length, omit time.Duration) []*topology {
	var all []*topology
	for _, place := range []struct {
		name  string
		world lab.World
	}{{"distinct", lab.ThreeWays()}, {"one-exit", lab.ThreeWaysOneExit()}, {"tunnel", lab.ThreeWays()}, {"exit", lab.ThreeWays()}} {
		for _, library := range peer.QUICServers {
			q := quicSession{library: library, length: length, omit: omit}
			var way quicWay = &q
			switch place.name {
			case "tunnel":
				way = &quicTunnel{quicSession: q}
			case "exit":
				way = &quicExit{quicSession: q}
			}
			t := &topology{name: place.name + "/" + library, world: place.world, serve: way.serve}
			for _, every := range periods {
				t.cases = append(t.cases, way.variant(every, every))
				if slices.Contains(reordered, every) {
					t.cases = append(t.cases, way.variant(every+"-reorder", every, "--reorder", "100ms"))
				}
			}
			all = append(all, t)
		}
	}
	return all
}

// quicWay is how a QUIC session gets to its server.
type quicWay interface {
	serve(context.Context, *stage) error
	// variant measures with paths that switch so often.
	variant(name, every string, flags ...string) variant
}

func (q *quicSession) serve(ctx context.Context, s *stage) (err error) {
	q.QUIC, err = peer.QUICServer(ctx, s.Host("server"), q.library,
		peer.QUICConfig{Addr: quicServer, Names: []string{"server.example"}, Work: s.work, Say: s.say})
	return err
}

// variant measures through a relay.
func (q *quicSession) variant(name, every string, flags ...string) variant {
	return q.relayed(name, func(seed int) []string { return append(split(every, lab.Ways, seed), flags...) }, q.measure)
}

// relayed measures through `heddle split` with these flags.
func (q *quicSession) relayed(name string, flags func(seed int) []string, measure func(context.Context, *stage, netip.AddrPort, *peer.Process) ([]figure, error)) variant {
	return variant{name, func(ctx context.Context, s *stage, seed int) ([]figure, error) {
		relay, err := s.start(ctx, append([]string{"split", "--listen", quicRelay.String(), "--to", quicServer.String()}, flags(seed)...)...)
		if err != nil {
			return nil, err
		}
		defer relay.Stop()
		if err := relay.AwaitLog(ctx, "listening on"); err != nil {
			return nil, err
		}
		return measure(ctx, s, quicRelay, relay)
	}}
}

// quicFetch is one test of the client, and the name of its figure.
type quicFetch struct {
	name string
	peer.QUICTest
}

// measure downloads, then uploads, each in a connection of its own.
func (q *quicSession) measure(ctx context.Context, s *stage, to netip.AddrPort, running *peer.Process) ([]figure, error) {
	return q.fetch(ctx, s, to, running, quicFetch{"down", peer.QUICTest{For: q.length, Omit: q.omit}},
		quicFetch{"up", peer.QUICTest{Up: true, For: q.length, Omit: q.omit}})
}

// fetch makes the tests one after the other, through what is running.
func (q *quicSession) fetch(ctx context.Context, s *stage, to netip.AddrPort, running *peer.Process, tests ...quicFetch) ([]figure, error) {
	if err := s.ResetLateness(); err != nil {
		return nil, err
	}
	var figures []figure
	for _, test := range tests {
		test.To = to
		result, err := q.Fetch(ctx, s.Host("client"), test.QUICTest)
		if err != nil {
			return nil, errors.Join(err, logs(running, q.Process))
		}
		figures = append(figures, throughput(test.name, result.BitsPerSecond))
	}
	return figures, nil
}
