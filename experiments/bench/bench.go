package bench

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"

	"heddle/lab"
	"heddle/lab/peer"
	"heddle/path"
)

// Options say how a bench runs.
type Options struct {
	// Rounds is how often each case is measured.
	Rounds int
	// Quick measures a few cases, shorter.
	Quick bool
	// Only keeps the cases whose names begin with one of these words, such as "unlimited" or "equal/100ms", and their
	// baselines; empty keeps all.
	Only []string
	// Heddle is the path of the heddle binary under test.
	Heddle string
	// Progress takes a line for each run.
	Progress io.Writer
}

// Bench is one measurement of a paper, not yet run.
type Bench struct {
	name       string
	topologies func(quick bool) []*topology
	// paper gives the published ratio to the baseline of a case, or nil where there is none.
	paper func(name string) *float64
}

// topology is one world with what serves in it, and the cases that are compared there; the first is the baseline of
// the others.
type topology struct {
	name  string // the first words of its cases
	world lab.World
	cases []variant
	// serve starts what all cases share, which ends with the world; nil for nothing.
	serve func(ctx context.Context, s *stage) error

	stage *stage // once it is up
}

// variant is one case of a topology.
type variant struct {
	name string
	// measure brings the client up, measures, and ends it. It resets the world's lateness where the measurement
	// begins. All variants of a round get the same seed, so that they draw the same weights.
	measure func(ctx context.Context, s *stage, seed int) ([]figure, error)
}

// figure is one number that a run of a variant gives. Its row is called TOPOLOGY/VARIANT/NAME, or TOPOLOGY/VARIANT
// where the name is empty.
type figure struct {
	name, metric, unit string
	value              float64
}

// throughput is a figure in Mbit/s.
func throughput(name string, bitsPerSecond float64) figure {
	return figure{name, "throughput", "Mbit/s", bitsPerSecond / 1e6}
}

// stage is a topology's world while it is up.
type stage struct {
	*lab.Instance
	heddle string // the binary under test
	work   string // an existing directory of this topology's own
	say    func(format string, args ...any)
}

// start starts the binary under test in the client.
func (s *stage) start(ctx context.Context, args ...string) (*peer.Process, error) {
	return peer.Start(ctx, s.Host("client"), s.heddle, args...)
}

// startUntil starts it and waits until it says a word.
func (s *stage) startUntil(ctx context.Context, word string, args ...string) (*peer.Process, error) {
	p, err := s.start(ctx, args...)
	if err != nil {
		return nil, err
	}
	if err := p.AwaitLog(ctx, word); err != nil {
		p.Stop()
		return nil, err
	}
	return p, nil
}

func (t *topology) caseName(v variant) string { return t.name + "/" + v.name }

// Check says what is wrong with the options.
func (b Bench) Check(o Options) error {
	_, err := only(b.topologies(o.Quick), o.Only)
	return err
}

// only keeps the variants whose case begins with one of the words, and the baselines that these are compared with.
func only(all []*topology, words []string) ([]*topology, error) {
	if len(words) == 0 {
		return all, nil
	}
	wanted := func(name string) bool {
		return slices.ContainsFunc(words, func(word string) bool {
			return strings.HasPrefix(name+"/", strings.TrimSuffix(word, "/")+"/")
		})
	}
	var kept []*topology
	for _, t := range all {
		rest := slices.DeleteFunc(slices.Clone(t.cases[1:]), func(v variant) bool { return !wanted(t.caseName(v)) })
		if len(rest) > 0 || wanted(t.caseName(t.cases[0])) {
			t.cases = append(t.cases[:1:1], rest...)
			kept = append(kept, t)
		}
	}
	if len(kept) == 0 {
		first := all[0].caseName(all[0].cases[0])
		return nil, &path.Error{What: "--only " + strings.Join(words, ","), Why: "no case begins with that",
			Hint: "such as " + first}
	}
	return kept, nil
}

// logs is what processes of a run that failed printed.
func logs(running ...*peer.Process) error {
	var all []error
	for _, p := range running {
		if text := p.Log(); text != "" {
			all = append(all, errors.New(text))
		}
	}
	return errors.Join(all...)
}
