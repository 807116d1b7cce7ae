package collect

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"heddle/internal/atomicfile"
	"heddle/lab"
	"heddle/lab/browser"
	"heddle/observe"
	"heddle/path"
)

// Options control a collection.
type Options struct {
	Sites    Sites
	Visits   int      // to each monitored page; other pages get one
	Paths    int      // paths of a split visit
	Schedule []string // flags of `heddle up`
	// Out takes the split visits. Plain, if not empty, takes visits over one path, which alternate with them.
	Out, Plain string
	Jobs       int       // concurrent visits, each in its own world
	Heddle     string    // path of the binary
	Seed       uint64    // of the order of visits
	Talk       io.Writer // takes progress lines
	DryRun     bool      // make no visit

	begin func(context.Context) (visits, error) // nil for the world of split visits
	kind  string                                // of defended visits; empty for split
}

// attempts bounds the tries of a visit, since this machine may be slow for a moment.
const attempts = 5

// visits makes visits, one at a time.
type visits interface {
	visit(context.Context, task) (Visit, error)
	end() error
}

// Summary is the result of a collection. Its JSON fields are a stable interface.
type Summary struct {
	Out     string  `json:"out"`
	Plain   string  `json:"plain,omitempty"`
	Sites   int     `json:"sites"`
	Visits  int     `json:"visits"` // wanted
	Made    int     `json:"made"`   // in this run
	Kept    int     `json:"kept"`
	Failed  int     `json:"failed"`
	Repeats int     `json:"repeats"` // attempts beyond the first, of all visits
	Packets int     `json:"packets"`
	Seconds float64 `json:"seconds"`
}

// task is one visit to make.
type task struct {
	site     Site
	round    int
	load     int64
	defended bool
}

// Of names the file of a data set, if there are several. For loads.parquet and tor it is loads-tor.parquet.
func (o Options) Of(name string) string {
	extension := filepath.Ext(o.Out)
	return strings.TrimSuffix(o.Out, extension) + "-" + name + extension
}

// each collects one data set after the other. edit says how each is made.
func (o Options) each(ctx context.Context, names []string, edit func(one *Options, name string)) (all []Summary, err error) {
	for _, name := range names {
		one := o
		one.Out, one.Plain, one.Paths = o.Of(name), "", 1
		edit(&one, name)
		s, err := Run(ctx, one)
		all = append(all, s)
		if err != nil {
			return all, err
		}
	}
	return all, nil
}

// tasks returns all visits in rounds, each in a random order of its own, alternately with and without the defence.
func (o Options) tasks() []task {
	random := rand.New(rand.NewPCG(o.Seed, 0))
	var all []task
	for round := range o.Visits {
		for _, i := range random.Perm(len(o.Sites.Site)) {
			site := o.Sites.Site[i]
			if round > 0 && !site.Monitored {
				continue
			}
			t := task{site, round, int64(round*len(o.Sites.Site) + i), true}
			all = append(all, t)
			if t.defended = false; o.Plain != "" {
				all = append(all, t)
			}
		}
	}
	return all
}

func (o Options) check() error {
	switch {
	case o.Visits < 1 || o.Visits > 10_000:
		return &path.Error{What: fmt.Sprintf("visits %d", o.Visits), Why: "not in 1 to 10000"}
	case o.Paths < 1 || o.Paths > len(lab.Ways):
		return &path.Error{What: fmt.Sprintf("paths %d", o.Paths), Why: fmt.Sprintf("the client has %d ways out", len(lab.Ways)), Hint: "choose 1 to 3"}
	case o.Jobs < 1 || o.Jobs > runtime.NumCPU():
		return &path.Error{What: fmt.Sprintf("jobs %d", o.Jobs), Why: fmt.Sprintf("this machine has %d processors", runtime.NumCPU())}
	}
	if o.DryRun {
		return nil
	}
	if err := lab.Supported(); err != nil {
		return err
	}
	return browser.Supported()
}

// Run makes the visits that are not in the journal yet, and then writes the data sets. The journal is beside Out until
// all visits are made. If Run is interrupted, only visits in progress are lost.
func Run(ctx context.Context, o Options) (Summary, error) {
	all := o.tasks()
	s := Summary{Out: o.Out, Plain: o.Plain, Sites: len(o.Sites.Site), Visits: len(all)}
	if err := o.check(); err != nil || o.DryRun {
		return s, err
	}
	began := time.Now()
	text, err := json.Marshal(o.Sites)
	if err != nil {
		return s, err
	}
	digest := sha256.Sum256(text)
	if err := os.MkdirAll(filepath.Dir(o.Out), 0o755); err != nil {
		return s, &path.Error{What: "collect", Err: err}
	}
	j, err := openJournal(o.Out+".journal", setting{hex.EncodeToString(digest[:]), o.Paths, o.Schedule})
	if err != nil {
		return s, err
	}
	defer j.Close()
	wanted := slices.DeleteFunc(slices.Clone(all), func(t task) bool {
		v, done := j.done[t.key()]
		return done && v.Error == ""
	})
	if len(wanted) < len(all) {
		fmt.Fprintf(o.Talk, "%d of %d visits were made before\n", len(all)-len(wanted), len(all))
	}
	err = o.make(ctx, j, wanted, &s)
	s.Seconds = time.Since(began).Seconds()
	if err != nil {
		return s, err
	}
	err = o.write(j, all, &s)
	return s, err
}

// make makes visits concurrently.
func (o Options) make(ctx context.Context, j *journal, wanted []task, s *Summary) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	queue := make(chan task)
	var work sync.WaitGroup
	var mu sync.Mutex
	began := time.Now()
	for range min(o.Jobs, len(wanted)) {
		work.Go(func() {
			err := o.work(ctx, queue, func(v Visit, last bool) error {
				mu.Lock()
				defer mu.Unlock()
				if !last {
					o.sayAgain(v, s.Made+1, len(wanted))
					return nil
				}
				s.Made++
				o.say(v, s.Made, len(wanted), time.Since(began))
				return j.add(v)
			})
			if err != nil {
				cancel(err)
			}
		})
	}
	for _, t := range wanted {
		select {
		case queue <- t:
		case <-ctx.Done():
		}
	}
	close(queue)
	work.Wait()
	return context.Cause(ctx)
}

// work makes visits in its own world, and reports each attempt to heard.
func (o Options) work(ctx context.Context, queue <-chan task, heard func(v Visit, last bool) error) (err error) {
	begin := o.begin
	if begin == nil {
		begin = o.beginVisitor
	}
	v, err := begin(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, v.end()) }()
	for t := range queue {
		if err := persist(ctx, v, t, heard); err != nil {
			return err
		}
	}
	return nil
}

// persist makes one visit, and repeats it if it is rejected.
func persist(ctx context.Context, in visits, t task, heard func(v Visit, last bool) error) error {
	for n := 0; ; n++ {
		v, err := in.visit(ctx, t)
		if err != nil {
			return err
		}
		v.Repeats = n
		if last := n+1 == attempts; v.Error == "" || last {
			if v.Error != "" {
				v.Error = fmt.Sprintf("given up after %d attempts: %s", attempts, v.Error)
			}
			return heard(v, true)
		}
		if err := heard(v, false); err != nil {
			return err
		}
	}
}

func (o Options) beginVisitor(ctx context.Context) (visits, error) {
	w, err := begin(ctx, o.Sites)
	if err != nil {
		return nil, err
	}
	return &visitor{world: w, heddle: o.Heddle, defence: o.Schedule, ways: lab.Ways[:o.Paths]}, nil
}

func (o Options) name(v Visit) string {
	what := "plain"
	if v.Defended {
		what = cmp.Or(o.kind, "split")
	}
	return fmt.Sprintf("%s, round %d, %s", v.Site, v.Round+1, what)
}

func (o Options) say(v Visit, made, wanted int, took time.Duration) {
	packets := 0
	for _, r := range v.Rows {
		packets += len(r.Size)
	}
	came := fmt.Sprintf("%d packets", packets)
	if v.Error != "" {
		came = "failed: " + v.Error
	}
	left := took / time.Duration(made) * time.Duration(wanted-made)
	fmt.Fprintf(o.Talk, "[%d/%d] %s: %s in %.1f s; %s left\n", made, wanted, o.name(v), came, v.Seconds, left.Round(time.Second))
}

// sayAgain reports a rejected attempt.
func (o Options) sayAgain(v Visit, at, wanted int) {
	fmt.Fprintf(o.Talk, "[%d/%d] %s: rejected: %s; attempt %d of %d follows\n", at, wanted, o.name(v), v.Error, v.Repeats+2, attempts)
}

// about is the metadata of a data set.
type about struct {
	Made     string    `json:"made"`
	Paths    int       `json:"paths"`
	Schedule []string  `json:"schedule"` // flags of the command that was between browser and sites
	Failed   int       `json:"failed"`
	Repeats  int       `json:"repeats"`
	From     time.Time `json:"from"`
	To       time.Time `json:"to"`
	Sites    []Site    `json:"sites"`
}

// write writes the data sets, with the loads in the order of their numbers.
func (o Options) write(j *journal, all []task, s *Summary) error {
	for _, defended := range []bool{true, false} {
		a := about{Made: "heddle lab collect", Paths: 1, Sites: o.Sites.Site}
		out := o.Plain
		if defended {
			out, a.Paths, a.Schedule = o.Out, o.Paths, o.Schedule
		}
		if out == "" {
			continue
		}
		var rows []observe.TraceRow
		for _, t := range all {
			v := j.done[t.key()]
			if t.defended != defended {
				continue
			}
			a.Repeats += v.Repeats
			if v.Error != "" {
				a.Failed++
				continue
			}
			s.Kept++
			rows = append(rows, v.Rows...)
			if a.From.IsZero() || v.At.Before(a.From) {
				a.From = v.At
			}
			if v.At.After(a.To) {
				a.To = v.At
			}
		}
		s.Failed += a.Failed
		s.Repeats += a.Repeats
		for _, r := range rows {
			s.Packets += len(r.Size)
		}
		slices.SortStableFunc(rows, func(a, b observe.TraceRow) int { return int(a.Load - b.Load) })
		if err := writeFile(out, rows, a); err != nil {
			return err
		}
	}
	return nil
}

func writeFile(name string, rows []observe.TraceRow, about any) error {
	err := atomicfile.WriteFunc(name, 0o644, func(w io.Writer) error { return observe.WriteRows(w, rows, about) })
	if err != nil {
		return &path.Error{What: "data set " + name, Err: err}
	}
	return nil
}
