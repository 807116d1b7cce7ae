package bench

import (
	"context"
	"net/netip"
	"time"

	"heddle/lab"
	"heddle/lab/peer"
)

// What a page's objects are like: so many bytes at a time, and a pause between them.
const (
	burstBytes = 250_000
	burstPause = 150 * time.Millisecond
)

// aids are what `heddle split` offers against the price of a switch, each as its flags.
var aids = []struct {
	name  string
	flags []string
}{
	{"plain", nil},
	{"at-gaps-5ms", []string{"--at-gaps", "5ms"}},
	{"settle-1s", []string{"--settle", "1s"}},
}

// quicAids compares the aids at one period over paths of different delay: a long download, a download's first second, and objects with pauses between them.
func quicAids(every string, length, omit time.Duration) []*topology {
	var all []*topology
	for _, library := range peer.QUICServers {
		q := &quicSession{library: library, length: length, omit: omit}
		t := &topology{name: "aids/" + library, world: lab.ThreeWaysUnequal(), serve: q.serve}
		t.cases = append(t.cases, q.aided("none", "none", nil))
		for _, aid := range aids {
			t.cases = append(t.cases, q.aided(every+"-"+aid.name, every, aid.flags))
		}
		all = append(all, t)
	}
	return all
}

func (q *quicSession) aided(name, every string, flags []string) variant {
	return q.relayed(name, func(seed int) []string { return append(split(every, lab.Ways, seed), flags...) },
		func(ctx context.Context, s *stage, to netip.AddrPort, relay *peer.Process) ([]figure, error) {
			return q.fetch(ctx, s, to, relay, quicFetch{"down", peer.QUICTest{For: q.length, Omit: q.omit}},
				quicFetch{"first-second", peer.QUICTest{For: time.Second}},
				quicFetch{"bursts", peer.QUICTest{For: q.length, Omit: q.omit, Pause: burstPause, Size: burstBytes}})
		})
}
