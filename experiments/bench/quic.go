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
				return quicTopologies([]string{"none", "100ms"}, 3*time.Second, time.Second)
			}
			periods := []string{"none", "500ms", "200ms", "100ms", "50ms", "40ms", "30ms", "20ms", "10ms"}
			return append(quicTopologies(periods, 4*time.Second, time.Second), quicAids("100ms", 4*time.Second, time.Second)...)
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

// The periods that are measured with what arrives put in order too, and how.
var (
	reordered = []string{"100ms", "10ms"}
	reorder   = []string{"--reorder", "100ms"}
)

func quicTopologies(periods []string, length, omit time.Duration) []*topology {
	var all []*topology
	for _, place := range []struct {
		name  string
		world lab.World
	}{{"distinct", lab.ThreeWays()}, {"one-exit", lab.ThreeWaysOneExit()}} {
		for _, library := range peer.QUICServers {
			q := &quicSession{library: library, length: length, omit: omit}
			t := &topology{name: place.name + "/" + library, world: place.world, serve: q.serve}
			for _, every := range periods {
				t.cases = append(t.cases, q.variant(every, every))
				if slices.Contains(reordered, every) {
					t.cases = append(t.cases, q.variant(every+"-reorder", every, reorder...))
				}
			}
			all = append(all, t)
		}
	}
	for _, library := range peer.QUICServers {
		q := &quicTunnel{quicSession: quicSession{library: library, length: length, omit: omit}}
		t := &topology{name: "tunnel/" + library, world: lab.ThreeWays(), serve: q.serve}
		for _, every := range periods {
			t.cases = append(t.cases, q.variant(every, every))
			if slices.Contains(reordered, every) {
				t.cases = append(t.cases, q.variant(every+"-reorder", every, reorder...))
			}
		}
		x := &quicExit{quicSession: quicSession{library: library, length: length, omit: omit}}
		joined := &topology{name: "exit/" + library, world: lab.ThreeWays(), serve: x.serve}
		for _, every := range periods {
			joined.cases = append(joined.cases, x.variant(every, every))
			if slices.Contains(reordered, every) {
				joined.cases = append(joined.cases, x.variant(every+"-reorder", every, reorder...))
			}
		}
		all = append(all, t, joined)
	}
	return all
}

func (q *quicSession) serve(ctx context.Context, s *stage) (err error) {
	q.QUIC, err = peer.QUICServer(ctx, s.Host("server"), q.library,
		peer.QUICConfig{Addr: quicServer, Names: []string{"server.example"}, Work: s.work, Say: s.say})
	return err
}

// variant measures download, then upload, each in a connection of its own through a relay that switches so often.
func (q *quicSession) variant(name, every string, flags ...string) variant {
	return variant{name, func(ctx context.Context, s *stage, seed int) ([]figure, error) {
		args := []string{"split", "--listen", quicRelay.String(), "--to", quicServer.String()}
		args = append(args, split(every, lab.Ways, seed)...)
		relay, err := s.start(ctx, append(args, flags...)...)
		if err != nil {
			return nil, err
		}
		defer relay.Stop()
		if err := relay.AwaitLog(ctx, "listening on"); err != nil {
			return nil, err
		}
		return q.measure(ctx, s, quicRelay, relay)
	}}
}

// measure downloads, then uploads, through what is running.
func (q *quicSession) measure(ctx context.Context, s *stage, to netip.AddrPort, running *peer.Process) ([]figure, error) {
	if err := s.ResetLateness(); err != nil {
		return nil, err
	}
	var figures []figure
	for _, direction := range []string{"down", "up"} {
		result, err := q.Fetch(ctx, s.Host("client"), peer.QUICTest{To: to, Up: direction == "up", For: q.length, Omit: q.omit})
		if err != nil {
			return nil, errors.Join(err, logs(running, q.Process))
		}
		figures = append(figures, throughput(direction, result.BitsPerSecond))
	}
	return figures, nil
}
