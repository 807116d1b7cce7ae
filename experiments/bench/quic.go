package bench

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"heddle/lab"
	"heddle/lab/peer"
)

// paperQUIC is the relative throughput at a switching period of 100 ms: the middle of "10-20%" less at reasonable
// frequencies (CoMPS, section 6). Its paths had an address each.
const paperQUIC = 0.85

// QUIC is figure 8(b) and (c) of CoMPS: goodput of HTTP/3 down and up through `heddle split`, by switching period, over
// three paths, relative to no switching. The client is quic-go; the servers are quic-go, aioquic and quiche with their
// defaults. In distinct each path has its own address. In one-exit the server sees one address with a port for each
// path. In exit (all paths lead to one proxy) and tunnel (`heddle up`) it sees one address and port. In shared all paths
// have one bottleneck.
func QUIC() Bench {
	return Bench{
		name: "quic",
		topologies: func(quick bool) []*topology {
			if quick {
				length, omit := 1500*time.Millisecond, 500*time.Millisecond
				return append(quicTopologies([]string{"none", "100ms"}, nil, length, omit), quicShared([]string{"quic-go"}, true, length, omit)...)
			}
			length, omit := 4*time.Second, time.Second
			periods := []string{"none", "500ms", "200ms", "100ms", "50ms", "40ms", "30ms", "20ms", "10ms"}
			return slices.Concat(quicTopologies(periods, []string{"100ms", "10ms"}, length, omit),
				quicShared(append(slices.Clone(peer.QUICServers), "ngtcp2"), false, length, omit), quicAids("100ms", length, omit))
		},
		paper: func(name string) *float64 {
			if !strings.HasPrefix(strings.TrimPrefix(name, "shared/"), "distinct/") || !strings.Contains(name, "/100ms/") {
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
	directions   []string
	length, omit time.Duration

	file         string // wg-quick file of the tunnel's client
	proxy, token string // the proxy as a path argument, and its token file
}

// quicTopologies combines all places and servers.
func quicTopologies(periods, reordered []string, length, omit time.Duration) []*topology {
	var all []*topology
	for _, place := range quicPlaces {
		for _, library := range peer.QUICServers {
			q := &quicSession{quicPlace: place, library: library, directions: []string{"down", "up"}, length: length, omit: omit}
			all = append(all, q.topology(place.name+"/"+library, place.world(), periods, reordered))
		}
	}
	return all
}

// quicShared combines servers with the two extremes of what a server sees, where all paths have one bottleneck. Cases that
// hold what the client sends after a switch are named PERIOD-drain.
func quicShared(libraries []string, quick bool, length, omit time.Duration) []*topology {
	periods, reordered := sharedPeriods, []string{"100ms", "10ms"}
	if quick {
		periods, reordered = []string{"none", "100ms"}, nil
	}
	var all []*topology
	for _, place := range quicPlaces {
		if place.name != "distinct" && place.name != "exit" {
			continue
		}
		for _, library := range libraries {
			q := &quicSession{quicPlace: place, library: library, directions: []string{"down"}, length: length, omit: omit}
			t := q.topology("shared/"+place.name+"/"+library, lab.ThreeWaysShared(), q.survived(periods), reordered)
			if place.name == "distinct" {
				t.cases = append(t.cases, q.variant("100ms-drain", "100ms", "--drain", "250ms"))
			}
			if !quick {
				t.cases = append(t.cases, q.variant("auto", "auto"))
			}
			if place.name == "distinct" && !quick {
				t.cases = append(t.cases, q.variant("200ms", "200ms"), q.variant("200ms-drain", "200ms", "--drain", "250ms"), q.variant("50p", "50p"),
					q.variant("100ms-at-gaps", "100ms", "--at-gaps", "5ms"))
			}
			all = append(all, t)
		}
	}
	return all
}

// survived returns the periods that the server survives: ngtcp2's of Debian 12 ends if a client is back at an address before that is
// validated (docs/quic.md).
func (q *quicSession) survived(periods []string) []string {
	if q.library == "ngtcp2" && q.name == "distinct" {
		return slices.DeleteFunc(slices.Clone(periods), func(every string) bool { return every == "10ms" })
	}
	return periods
}

// topology has a case for each period. Cases that also reorder arrivals are named PERIOD-reorder.
func (q *quicSession) topology(name string, world lab.World, periods, reordered []string) *topology {
	t := &topology{name: name, world: world, serve: q.serve, check: func() error { return peer.CheckQUICServer(q.library) }}
	for _, every := range periods {
		t.cases = append(t.cases, q.variant(every, every))
		if slices.Contains(reordered, every) {
			t.cases = append(t.cases, q.variant(every+"-reorder", every, "--reorder", "100ms"))
		}
	}
	return t
}

// variant measures each direction, one after the other and over a new connection, at a switching period.
func (q *quicSession) variant(name, every string, flags ...string) variant {
	var tests []quicFetch
	for _, direction := range q.directions {
		tests = append(tests, quicFetch{direction, peer.QUICTest{Up: direction == "up", For: q.length, Omit: q.omit}})
	}
	return q.fetching(name, every, flags, tests...)
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
