package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"heddle/lab"
)

// maxLateness is the mean lateness in milliseconds above which a run is rejected.
const maxLateness = 1

// attempts bounds the tries of one run.
const attempts = 4

type runner struct {
	Bench
	*Table
	options     Options
	kept        []*topology
	done, total int
	began       time.Time
}

// Run measures. On an error the report holds what was measured before it.
func (b Bench) Run(ctx context.Context, o Options) (Report, error) {
	r := &runner{Bench: b, Table: NewTable(b.name), options: o}
	if o.Congestion != "" {
		r.report.Machine.Congestion = o.Congestion
	}
	var err error
	if r.kept, err = only(b.topologies(o.Quick), o.Only); err == nil {
		err = r.run(ctx)
	}
	return r.Report(), err
}

func (r *runner) run(ctx context.Context) (err error) {
	for _, t := range r.kept {
		if t.check == nil {
			continue
		}
		if err := t.check(); err != nil {
			return err
		}
	}
	work, err := os.MkdirTemp("", "heddle-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	for _, t := range r.kept {
		defer func() { err = errors.Join(err, t.down()) }()
		dir, err := os.MkdirTemp(work, "")
		if err != nil {
			return err
		}
		t.world.Congestion = r.options.Congestion
		if err := t.up(ctx, &stage{heddle: r.options.Heddle, work: dir, say: r.say}); err != nil {
			return err
		}
		r.total += len(t.cases) * r.options.Rounds
	}
	if start := r.report.Load.Start; start > float64(r.report.Machine.Cores)/2 {
		r.say("warning: the machine is busy (load %.1f on %d cores): cases without limit need it to themselves",
			start, r.report.Machine.Cores)
	}
	r.began = time.Now()
	for round := range r.options.Rounds {
		for _, t := range r.kept {
			// Rotate the cases, so that none always follows the same one.
			first := round % len(t.cases)
			for _, v := range slices.Concat(t.cases[first:], t.cases[:first]) {
				if err := r.once(ctx, t, v, round); err != nil {
					return fmt.Errorf("%s: %w", t.caseName(v), err)
				}
			}
		}
	}
	return nil
}

// up makes the world and starts its servers.
func (t *topology) up(ctx context.Context, s *stage) (err error) {
	if s.Instance, err = lab.Up(ctx, t.world, lab.Options{Seed: 1}); err != nil {
		return err
	}
	t.stage = s
	if t.serve == nil {
		return nil
	}
	return t.serve(ctx, s)
}

func (t *topology) down() error {
	if t.stage == nil {
		return nil
	}
	return t.stage.Down()
}

// once measures one case, and repeats it after lateness or a failure.
func (r *runner) once(ctx context.Context, t *topology, v variant, round int) error {
	var err error
	for range attempts {
		var figures []figure
		figures, err = v.measure(ctx, t.stage, round+1)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		_, late, statusErr := t.stage.Status()
		if statusErr != nil {
			return statusErr
		}
		if err == nil && late.Mean > maxLateness {
			err = fmt.Errorf("the emulated links were late by %.2f ms on average, more than %d ms", late.Mean, maxLateness)
		}
		if err == nil {
			r.keep(t, v, round, figures, late)
			return nil
		}
		r.report.Rejected++
		r.say("%s, round %d: rejected: %v", t.caseName(v), round+1, err)
	}
	return fmt.Errorf("given up after %d tries: %w", attempts, err)
}

func (r *runner) keep(t *topology, v variant, round int, figures []figure, late lab.Lateness) {
	if late.Mean > r.report.LatenessMS.Mean {
		r.report.LatenessMS = late
	}
	var line string
	for _, f := range figures {
		row := Figure{Case: rowName(t, v, f), Metric: f.metric, Unit: f.unit, Group: t.name, Baseline: rowName(t, t.comparedBy(v, f), f)}
		row.Paper = r.paper(row.Case)
		if r.goal != nil {
			row.Goal = r.goal(row.Case)
		}
		if r.spot != nil {
			row.spot = r.spot(row.Case, f.metric)
		}
		r.Add(row, round, f.value)
		line += fmt.Sprintf(" %s %.1f %s,", f.name, f.value, f.unit)
	}
	r.done++
	left := time.Since(r.began) / time.Duration(r.done) * time.Duration(r.total-r.done)
	r.say("[%d/%d] %s, round %d:%s late by %.3f ms; %s left",
		r.done, r.total, t.caseName(v), round+1, line, late.Mean, left.Round(time.Second))
}

func (r *runner) say(format string, args ...any) {
	fmt.Fprintf(r.options.Progress, format+"\n", args...)
}

func rowName(t *topology, v variant, f figure) string {
	if f.name == "" {
		return t.caseName(v)
	}
	return t.caseName(v) + "/" + f.name
}
