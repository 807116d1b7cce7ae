package quicprobe

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"heddle/internal/netutil"
	"heddle/path"
)

// holds is the share of its speed that a download must keep.
const holds = 0.9

// minSwitches is the fewest changes in a download that prove something.
const minSwitches = 3

// maxRuns is the most downloads of a probe; each gets its share of the bytes.
const maxRuns = 16

// run is one download.
type run struct {
	bits     float64 // per second
	switches int
	settle   time.Duration // time to reach the speed that counts
	death    string        // why a connection with changes ended, "" if it lives
}

// errShort means that a run used up its bytes before it could measure anything.
var errShort = errors.New("it was too short")

// throughput compares downloads that change with those that do not.
func (p *prober) throughput(ctx context.Context) error {
	r := p.report
	if r.PathsAtOnce < 2 {
		return nil
	}
	if _, ok := downloads[r.ALPN]; !ok {
		p.note("nobody knows how to ask for a download by %q, so nothing is known of throughput", r.ALPN)
		return nil
	}
	t := &Throughput{Get: p.Get, Cases: []Case{}}
	k := r.PathsAtOnce
	var err error
	var bases []run
	if len(p.ways) > 1 && r.splits() {
		bases, err = p.sweep(ctx, t, changeAddress, min(k, len(p.ways)), p.pace.periods)
		if err == nil { // one of the other kind, to compare
			var more []run
			more, err = p.sweep(ctx, t, changePort, min(k, len(p.ways)), p.pace.periods[usualPeriod:usualPeriod+1])
			bases = append(bases, more...)
		}
	} else {
		bases, err = p.sweep(ctx, t, changePort, min(k, 3), p.pace.periods)
	}
	if len(bases) > 0 {
		r.Throughput = t
		t.Bits = median(bases, func(b run) float64 { return b.bits })
		t.Settle = time.Duration(median(bases, func(b run) float64 { return float64(b.settle) }))
		t.HoldsPort, t.HoldsAddress = shortest(t.Cases, changePort), shortest(t.Cases, changeAddress)
		r.Distrusts = distrusts(t.Cases)
	}
	_, unreachable := errors.AsType[*path.Error](err)
	if err == nil || unreachable || ctx.Err() != nil || errors.Is(err, errBytes) {
		return err
	}
	p.note("not all is known of throughput: %v", err)
	return nil
}

// sweep finds the shortest period that holds. It runs each between two downloads without changes, which it returns. Repetitions
// leave half of the bytes to what follows.
func (p *prober) sweep(ctx context.Context, t *Throughput, change string, k int, periods []time.Duration) ([]run, error) {
	p.talk("a download without changes")
	before, err := p.download(ctx, changePort, 1, 0)
	if err != nil {
		return nil, err
	}
	bases := []run{before}
	var done []Case
	for {
		i := next(done, periods)
		if i < 0 {
			return bases, nil
		}
		c, tries, err := repeated(func() (Case, bool, error) {
			p.talk("a download that changes between %d %ss every %v", k, map[string]string{changePort: "port", changeAddress: "addresse"}[change], periods[i])
			changing, err := p.download(ctx, change, k, periods[i])
			if err != nil {
				return Case{}, false, err
			}
			after, err := p.download(ctx, changePort, 1, 0)
			if err != nil {
				return Case{}, false, err
			}
			c := Case{Change: change, Paths: k, Every: periods[i].String(), Switches: changing.switches, Bits: changing.bits,
				Survived: changing.death == "", Why: changing.death}
			if base := (before.bits + after.bits) / 2; base > 0 {
				c.Ratio = changing.bits / base
			}
			bases, before = append(bases, after), after
			return c, c.held(), nil
		}, func() bool { return p.meter.used() < p.MaxBytes/2 })
		if c.Tries = tries; tries.Tried > 0 {
			done, t.Cases = append(done, c), append(t.Cases, c)
		}
		if errors.Is(err, errShort) {
			p.note("the line is too fast to see changes every %v within %d bytes: see --max-bytes", periods[i], p.MaxBytes)
			return bases, nil
		}
		if err != nil {
			return bases, err
		}
	}
}

// next returns the index of the next period to try, or -1: from the usual one to shorter ones while they hold, or to longer
// ones until one does. periods is in descending order.
func next(done []Case, periods []time.Duration) int {
	start := min(usualPeriod, len(periods)-1)
	if len(done) == 0 {
		return start
	}
	last := done[len(done)-1]
	at := slices.IndexFunc(periods, func(d time.Duration) bool { return d.String() == last.Every })
	down := done[0].held()
	switch {
	case down && last.held() && at+1 < len(periods):
		return at + 1
	case !down && !last.held() && at > 0:
		return at - 1
	}
	return -1
}

// shortest returns the shortest period that held together with all longer ones that were tried.
func shortest(cases []Case, change string) string {
	best := time.Duration(0)
	failed := time.Duration(0) // the longest that did not
	for _, c := range cases {
		every, err := time.ParseDuration(c.Every)
		if c.Change == change && err == nil && !c.held() {
			failed = max(failed, every)
		}
	}
	for _, c := range cases {
		every, err := time.ParseDuration(c.Every)
		if c.Change == change && err == nil && c.held() && every > failed && (best == 0 || every < best) {
			best = every
		}
	}
	if best == 0 {
		return ""
	}
	return best.String()
}

// distrusts compares new addresses with new ports at one period. It returns "" without such a pair.
func distrusts(cases []Case) string {
	for _, a := range cases {
		for _, b := range cases {
			switch {
			case a.Change != changeAddress || b.Change != changePort || a.Every != b.Every || a.Paths != b.Paths:
			case !a.held() && !b.held():
				return distrustsChanges
			case !a.held() && (!a.Survived || a.Ratio < holds*b.Ratio):
				return distrustsAddresses
			default:
				return distrustsNothing
			}
		}
	}
	return ""
}

// download runs one download over k endpoints, and changes every period; never if that is 0.
func (p *prober) download(ctx context.Context, change string, k int, period time.Duration) (run, error) {
	s, err := p.connect(ctx)
	if err != nil {
		return run{}, err
	}
	defer s.close()
	ways := 1
	if change == changeAddress {
		ways = len(p.ways)
	}
	if err := s.spread(ctx, p, k, ways); err != nil {
		return run{}, err
	}
	fetching, stop := context.WithCancel(ctx)
	defer stop()
	f := &fetch{session: s, authority: p.authority(), get: p.Get, grew: make(chan struct{}, 1)}
	ended := make(chan error, 1)
	go func() { ended <- downloads[p.report.ALPN](fetching, f) }()
	out, err := p.measure(ctx, f, ended, k, period)
	stop() // so that the client asks again for answers, and has nothing to acknowledge itself
	if out.switches > 0 && ctx.Err() == nil {
		// The download notices the end of a connection first.
		if death := p.death(ctx, s); err == nil || death != "" {
			out.death, err = death, nil // no error of the probe: the speed is what came until then
		}
	}
	return out, err
}

// fetch is a download on one connection.
type fetch struct {
	session        *session
	authority, get string
	bytes          atomic.Int64
	grew           chan struct{}
}

// Write counts bytes and discards them.
func (f *fetch) Write(b []byte) (int, error) {
	f.bytes.Add(int64(len(b)))
	netutil.Offer(f.grew, struct{}{})
	return len(b), nil
}

// measure lets the download reach its speed, and then counts for a while, or until its share of the bytes is used up.
func (p *prober) measure(ctx context.Context, f *fetch, ended <-chan error, k int, period time.Duration) (run, error) {
	share := p.MaxBytes / maxRuns
	if p.meter.used()+share > p.MaxBytes {
		return run{}, errBytes
	}
	w := watch{fetch: f, ended: ended, start: time.Now()}
	if err := w.until(ctx, p.pace.ramp, share/4); err != nil {
		return run{}, err
	}
	base, start := f.bytes.Load(), time.Now()
	var out run
	if period > 0 {
		ticker := time.NewTicker(period)
		defer ticker.Stop()
		w.tick = ticker.C
		w.change = func() {
			out.switches++
			f.session.socket.use(f.session.endpoints[out.switches%k])
		}
	}
	window := max(p.pace.window, 2*minSwitches*period)
	err := w.until(ctx, window, share)
	for err == nil && period > 0 && out.switches < minSwitches && f.bytes.Load() < share { // a busy machine changed late
		err = w.until(ctx, period, share)
	}
	took := time.Since(start)
	if err != nil {
		took = max(took, window) // a download that ended early carried nothing in the rest
	}
	if took > 0 {
		out.bits = 8 * float64(f.bytes.Load()-base) / took.Seconds()
	}
	out.settle = w.settled(out.bits)
	if err == nil && period > 0 && out.switches < minSwitches && f.bytes.Load() >= share {
		err = errShort
	}
	return out, err
}

// watch follows how a download grows.
type watch struct {
	*fetch
	ended <-chan error
	start time.Time
	grown []grown // one sample per sampleEvery, from the start

	tick   <-chan time.Time // ticks for changes; nil without changes
	change func()
}

type grown struct {
	at    time.Duration
	bytes int64
}

const sampleEvery = 50 * time.Millisecond

// until returns after a time or once the download has so many bytes. It fails if the download ends before.
func (w *watch) until(ctx context.Context, within time.Duration, bytes int64) error {
	timer := time.NewTimer(within)
	defer timer.Stop()
	for w.bytes.Load() < bytes {
		select {
		case <-w.grew:
			if now := time.Since(w.start); len(w.grown) == 0 || now-w.grown[len(w.grown)-1].at >= sampleEvery {
				w.grown = append(w.grown, grown{now, w.bytes.Load()})
			}
		case <-w.tick:
			w.change()
		case <-timer.C:
			return nil
		case err := <-w.ended:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// settled returns when the download first had nine tenths of a speed, in bit/s.
func (w *watch) settled(bits float64) time.Duration {
	for i := 1; i < len(w.grown); i++ {
		a, b := w.grown[i-1], w.grown[i]
		if 8*float64(b.bytes-a.bytes)/(b.at-a.at).Seconds() >= holds*bits {
			return b.at.Round(time.Millisecond)
		}
	}
	return 0
}

// median returns the median of value over list; 0 if that is empty.
func median[T any](list []T, value func(T) float64) float64 {
	var all []float64
	for _, one := range list {
		all = append(all, value(one))
	}
	slices.Sort(all)
	if len(all) == 0 {
		return 0
	}
	return (all[(len(all)-1)/2] + all[len(all)/2]) / 2
}

// smallError is a download too small to measure.
type smallError struct{ get, why string }

func (e *smallError) Error() string {
	return fmt.Sprintf("GET %s %s; name a large file with --get", e.get, e.why)
}
