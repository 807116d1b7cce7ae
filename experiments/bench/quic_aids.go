package bench

import (
	"context"
	"errors"
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
	return variant{name, func(ctx context.Context, s *stage, seed int) ([]figure, error) {
		args := append([]string{"split", "--listen", quicRelay.String(), "--to", quicServer.String()}, split(every, lab.Ways, seed)...)
		relay, err := s.start(ctx, append(args, flags...)...)
		if err != nil {
			return nil, err
		}
		defer relay.Stop()
		if err := relay.AwaitLog(ctx, "listening on"); err != nil {
			return nil, err
		}
		if err := s.ResetLateness(); err != nil {
			return nil, err
		}
		var figures []figure
		for _, test := range []struct {
			name string
			peer.QUICTest
		}{
			{"down", peer.QUICTest{For: q.length, Omit: q.omit}},
			{"first-second", peer.QUICTest{For: time.Second}},
			{"bursts", peer.QUICTest{For: q.length, Omit: q.omit, Pause: burstPause, Size: burstBytes}},
		} {
			test.To = quicRelay
			result, err := q.Fetch(ctx, s.Host("client"), test.QUICTest)
			if err != nil {
				return nil, errors.Join(err, logs(relay, q.Process))
			}
			figures = append(figures, throughput(test.name, result.BitsPerSecond))
		}
		return figures, nil
	}}
}
