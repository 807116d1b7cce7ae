package bench

import (
	"time"

	"heddle/lab"
	"heddle/lab/peer"
)

// Objects of a page: their size, and the pause between them.
const (
	burstBytes = 250_000
	burstPause = 150 * time.Millisecond
)

// aids are the flags of `heddle split` that reduce the cost of a switch.
var aids = []struct {
	name  string
	flags []string
}{
	{"plain", nil},
	{"at-gaps-5ms", []string{"--at-gaps", "5ms"}},
	{"settle-1s", []string{"--settle", "1s"}},
}

// quicAids compares the aids at one period over paths of different delay: a long download, the first second of a
// download, and objects with pauses.
func quicAids(every string, length, omit time.Duration) []*topology {
	long := peer.QUICTest{For: length, Omit: omit}
	bursts := long
	bursts.Pause, bursts.Size = burstPause, burstBytes
	var all []*topology
	for _, library := range peer.QUICServers {
		q := &quicSession{quicPlace: quicPlaces[0], library: library}
		t := &topology{name: "aids/" + library, world: lab.ThreeWaysUnequal(), serve: q.serve}
		add := func(name, every string, flags []string) {
			t.cases = append(t.cases, q.fetching(name, every, flags, quicFetch{"down", long},
				quicFetch{"first-second", peer.QUICTest{For: time.Second}}, quicFetch{"bursts", bursts}))
		}
		add("none", "none", nil)
		for _, aid := range aids {
			add(every+"-"+aid.name, every, aid.flags)
		}
		all = append(all, t)
	}
	return all
}
