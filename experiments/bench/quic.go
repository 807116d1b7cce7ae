package bench

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"heddle/lab/peer"
)

// paperQUIC is the relative throughput at a switching period of 100 ms: the middle of "10-20%" less at reasonable
// frequencies (CoMPS, section 6). Its paths had an address each.
const paperQUIC = 0.85

// QUIC is figure 8(b) and (c) of CoMPS: goodput of HTTP/3 down and up through `heddle split`, by switching period, over
// three paths, relative to no switching. The client is quic-go; the servers are quic-go, aioquic and quiche with their
// defaults. In distinct each path has its own address. In one-exit the server sees one address with a port for each
// path. In exit (all paths lead to one proxy) and tunnel (`heddle up`) it sees one address and port.
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
			return new(paperQUIC)
		},
	}
}

// quicSession is the server of one topology. length is measured in each direction, after omit.
type quicSession struct {
	*peer.QUIC
	quicPlace
	library      string
	length, omit time.Duration

	file         string // wg-quick file of the tunnel's client
	proxy, token string // the proxy as a path argument, and its token file
}

// quicTopologies combines all places and servers. Cases that also reorder arrivals are named PERIOD-reorder.
func quicTopologies(periods, reordered []string, length, omit time.Duration) []*topology {
	var all []*topology
	for _, place := range quicPlaces {
		for _, library := range peer.QUICServers {
			q := &quicSession{quicPlace: place, library: library, length: length, omit: omit}
			t := &topology{name: place.name + "/" + library, world: place.world(), serve: q.serve,
				check: func() error { return peer.CheckQUICServer(library) }}
			for _, every := range periods {
				t.cases = append(t.cases, q.variant(every, every))
				if slices.Contains(reordered, every) {
					t.cases = append(t.cases, q.variant(every+"-reorder", every, "--reorder", "100ms"))
				}
			}
			all = append(all, t)
		}
	}
	return all
}

// variant downloads, then uploads, each over a new connection, at a switching period.
func (q *quicSession) variant(name, every string, flags ...string) variant {
	return q.fetching(name, every, flags, quicFetch{"down", peer.QUICTest{For: q.length, Omit: q.omit}},
		quicFetch{"up", peer.QUICTest{Up: true, For: q.length, Omit: q.omit}})
}

// quicFetch is one test of the client, and the name of its figure.
type quicFetch struct {
	name string
	peer.QUICTest
}

// fetching runs the tests one after the other at a switching period.
func (q *quicSession) fetching(name, every string, flags []string, tests ...quicFetch) variant {
	return variant{name, func(ctx context.Context, s *stage, seed int) ([]figure, error) {
		running, err := q.start(q, ctx, s, append(schedule(every, seed), flags...))
		if err != nil {
			return nil, err
		}
		defer running.Stop()
		if err := s.ResetLateness(); err != nil {
			return nil, err
		}
		var figures []figure
		for _, test := range tests {
			test.To = q.to
			result, err := q.Fetch(ctx, s.Host("client"), test.QUICTest)
			if err != nil {
				return nil, errors.Join(err, logs(running, q.Process))
			}
			figures = append(figures, throughput(test.name, result.BitsPerSecond))
		}
		return figures, nil
	}}
}
