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

// Options control how a bench runs.
type Options struct {
	Rounds int  // measurements of each case
	Quick  bool // fewer cases, and shorter
	// Only keeps the cases whose names begin with one of these words, such as "unlimited" or "equal/100ms", and their
	// baselines. Empty keeps all.
	Only []string
	// Congestion is the congestion control of TCP in the worlds; empty means the machine's.
	Congestion string
	Heddle     string    // path of the binary under test
	Progress   io.Writer // takes a line for each run
}

// Bench is one measurement of a paper, before it runs.
type Bench struct {
	name       string
	topologies func(quick bool) []*topology
	// paper returns the published ratio of a case to its baseline, or nil if there is none.
	paper func(name string) *float64
	// goal returns the goal for a case, such as ">=0.97", or ""; nil is none at all.
	goal func(name string) string
	// spot says where a row is in the plot. The zero value is by the words of the case; nil is that for all.
	spot func(name, metric string) spot
}

// topology is one world with its servers, and the cases compared there.
type topology struct {
	name  string // first words of its cases
	world lab.World
	cases []variant
	// baseline returns the name of the case that one is compared with; nil is the first case for all.
	baseline func(v variant) string
	// instead returns the name of the case that a figure of v is compared with instead, or "". It is not kept for --only. May be nil.
	instead func(v variant, figure string) string
	// serve starts the servers that all cases share, which end with the world; may be nil.
	serve func(ctx context.Context, s *stage) error
	// check fails where serve is bound to, before anything is built or started; nil where nothing is known beforehand.
	check func() error

	stage *stage // once it is up
}

// variant is one case of a topology.
type variant struct {
	name string
	// measure starts the client, measures, and ends it. It resets the world's lateness when the measurement begins. All
	// variants of a round get the same seed, so that they draw the same weights.
	measure func(ctx context.Context, s *stage, seed int) ([]figure, error)
}

// figure is one number from a run of a variant, in row TOPOLOGY/VARIANT/NAME, or TOPOLOGY/VARIANT for an empty name.
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
	work   string // existing directory of this topology
	say    func(format string, args ...any)
}

// start starts the binary under test on the client.
func (s *stage) start(ctx context.Context, args ...string) (*peer.Process, error) {
	return peer.Start(ctx, s.Host("client"), s.heddle, args...)
}

// startUntil starts it and waits until it prints word.
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

// compared returns the case that v is compared with.
func (t *topology) compared(v variant) variant {
	if t.baseline != nil {
		for _, base := range t.cases {
			if base.name == t.baseline(v) {
				return base
			}
		}
	}
	return t.cases[0]
}

// comparedBy returns the case that a figure of v is compared with.
func (t *topology) comparedBy(v variant, f figure) variant {
	if t.instead != nil {
		if name := t.instead(v, f.name); name != "" {
			return variant{name: name}
		}
	}
	return t.compared(v)
}

// Check returns an error if the options are invalid.
func (b Bench) Check(o Options) error {
	_, err := only(b.topologies(o.Quick), o.Only)
	return err
}

// only keeps the variants whose case begins with one of the words, and their baselines.
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
		keep := map[string]bool{}
		for _, v := range t.cases {
			if wanted(t.caseName(v)) {
				keep[v.name], keep[t.compared(v).name] = true, true
			}
		}
		if len(keep) > 0 {
			t.cases = slices.DeleteFunc(t.cases, func(v variant) bool { return !keep[v.name] })
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

// logs returns the output of processes of a failed run as an error.
func logs(running ...*peer.Process) error {
	var all []error
	for _, p := range running {
		if text := p.Log(); text != "" {
			all = append(all, errors.New(text))
		}
	}
	return errors.Join(all...)
}
