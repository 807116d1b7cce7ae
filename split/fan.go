// Package split sends one datagram session over several paths, each packet over the path that the schedule names, to a
// server that knows nothing of it (CoMPS, section 3).
//
// Two things stand in front of the [Fan] that does so: [NewBind], with which an embedded wireguard-go sends its own
// packets over the paths, and [Relay], which serves any program that speaks UDP.
//
// It fails closed: with fewer healthy paths than were asked for, nothing is sent. It hides nothing from somebody who
// sees all paths, nor that packets are exchanged with the server.
package split

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"heddle/internal/errhint"
	"heddle/path"
	"heddle/schedule"
)

// Fan sends each datagram of one session over the path that its schedule names. Its methods may be called from
// several goroutines.
type Fan struct {
	o      Options
	log    *slog.Logger
	lanes  []*lane // those of the schedule first, in its order, then those beside it
	loss   *lossMeter
	id     string // tells the session from others, to those who carry several of its paths
	since  time.Time
	server atomic.Pointer[netip.AddrPort]
	prober prober // nil where nothing can be asked of the server
	now    func() time.Time

	nameservers []netip.AddrPort // this machine's, from before a tunnel changed them

	due    atomic.Int64  // when the running unit ends, Unix nanoseconds
	wake   chan struct{} // the unit is over and nothing has gone up yet, or the pacer is asleep
	asleep atomic.Bool
	stop   context.CancelFunc
	watch  *path.Watch // while it is open; nil where there can be none
	work   sync.WaitGroup

	mu       sync.Mutex
	open     bool
	sched    *schedule.Schedule
	rules    *ruler // nil where there are none
	usable   []bool // lanes of the schedule
	enough   bool
	proved   bool // enough paths were up once
	stopWhy  string
	current  int
	switches uint64
	refused  uint64 // datagrams not sent because too few paths were healthy
	withheld uint64 // datagrams not sent because the path that a rule names was down
	lastSent time.Time
	lastUp   time.Time // when something last arrived
	hold     time.Time // no probes before
	nudge    func()
	warnings []string
	warned   map[string]bool
	resolved time.Time
}

// NewFan checks the options and makes the paths. It sends nothing.
func NewFan(o Options) (*Fan, error) {
	if len(o.Via) == 0 {
		return nil, &path.Error{What: "session " + o.Session, Why: "no path was given", Hint: "add --via NAME=KIND:ARG, for example --via home=if:eth0"}
	}
	if err := checkServer(o.To); err != nil {
		return nil, err
	}
	if o.MinPaths == 0 {
		o.MinPaths = min(2, len(o.Via))
	}
	if o.MinPaths < 1 || o.MinPaths > len(o.Via) {
		return nil, &path.Error{What: fmt.Sprintf("min-paths %d", o.MinPaths), Why: fmt.Sprintf("%d paths were given", len(o.Via)),
			Hint: fmt.Sprintf("choose 1 to %d, or add paths", len(o.Via))}
	}
	sched, err := schedule.New(o.Schedule, len(o.Via))
	if err != nil {
		return nil, err
	}
	f := &Fan{o: o, log: o.Log, sched: sched, loss: newLossMeter(len(o.Via) + len(o.Beside)), id: rand.Text(), since: time.Now(), now: time.Now, current: -1,
		usable: make([]bool, len(o.Via)), wake: make(chan struct{}, 1), warned: map[string]bool{}}
	if f.log == nil {
		f.log = slog.Default()
	}
	f.due.Store(math.MaxInt64)
	ways := o.ways
	if ways == nil {
		if ways, err = o.Ways(); err != nil {
			return nil, err
		}
	}
	for _, spec := range o.lanes() {
		f.lanes = append(f.lanes, newLane(len(f.lanes), spec, ways[spec.Name], o))
	}
	if f.rules, err = newRuler(o.Rules, f.lanes, f.port()); err != nil {
		return nil, err
	}
	f.warnSharedObservers()
	return f, f.checkMTU()
}

// warnSharedObservers says which paths one observer sees both of. Some kinds know their observer only once they are open.
func (f *Fan) warnSharedObservers() {
	by, exits := map[string]*lane{}, map[string]*lane{}
	for _, l := range f.lanes {
		info := l.way.Describe()
		switch other, exit := by[info.Observer], exits[info.Exit]; {
		case exit != nil && info.Exit != "" && exit.spec.Base != l.spec.Base:
			f.warn("paths %s and %s leave by one exit (%s): the networks before it see a part each, and whoever runs it sees both", exit.spec.Name, l.spec.Name, info.Exit)
		case other != nil:
			f.warn("paths %s and %s share an observer (%s): whoever watches there sees both, so they count as one for privacy", other.spec.Name, l.spec.Name, info.Observer)
		}
		by[info.Observer], exits[info.Exit] = l, l
	}
}

// warn logs each warning once and keeps it for status. f.mu must not be held.
func (f *Fan) warn(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	f.mu.Lock()
	known := f.warned[text] || len(f.warnings) >= 20
	if !known {
		f.warned[text] = true
		f.warnings = append(f.warnings, text)
	}
	f.mu.Unlock()
	if !known {
		f.log.Warn(text, "session", f.o.Session)
	}
}

// Open resolves the server's name if that was not done, opens the paths that can be opened soon, and keeps looking after
// them until Close. Paths that cannot be opened now are tried again.
func (f *Fan) Open(ctx context.Context) error {
	if f.server.Load() == nil {
		if err := f.Resolve(ctx); err != nil {
			return err
		}
	}
	f.mu.Lock()
	if f.open {
		f.mu.Unlock()
		return nil
	}
	f.open = true
	var err error
	if f.watch, err = path.NewWatch(); err != nil {
		f.log.Debug("changes of this machine are not told, so it is asked all the time", "session", f.o.Session, "error", err)
	}
	session := path.WithSession(context.Background(), f.id)
	if f.o.Reorder > 0 && f.prober == nil { // WireGuard counts by itself
		session = path.WithOrder(session)
	}
	tending, cancel := context.WithCancel(session)
	f.stop = cancel
	opened := f.openAll(tending)
	f.asleep.Store(true)
	f.work.Go(func() { f.tend(tending) })
	f.work.Go(func() { f.pace(tending) })
	f.mu.Unlock()

	patience := time.NewTimer(firstPatience)
	defer patience.Stop()
	for waiting := len(f.lanes); waiting > 0; {
		select {
		case <-opened:
			waiting--
			continue
		case <-patience.C:
		case <-tending.Done():
		case <-ctx.Done():
		}
		waiting = 0
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.judge(f.now())
	return nil
}

// openAll begins to open all lanes, until ctx ends; each one that is open or has failed tells so. A failure is in the
// lane's health, and it is tried again. f.mu is held.
func (f *Fan) openAll(ctx context.Context) <-chan struct{} {
	server := *f.server.Load()
	opened := make(chan struct{}, len(f.lanes))
	for _, l := range f.lanes {
		l.reopenable()
		f.work.Go(func() {
			if l.open(ctx, server) == nil {
				f.warnSharedObservers()
			}
			opened <- struct{}{}
		})
	}
	return opened
}

// firstPatience is how long a session waits for all its paths before it begins with those that are open.
const firstPatience = 5 * time.Second

// Close closes the flows. Open may be called again.
func (f *Fan) Close() error {
	f.mu.Lock()
	if !f.open {
		f.mu.Unlock()
		return nil
	}
	f.open = false
	f.stop()
	for _, l := range f.lanes {
		l.close()
	}
	f.mu.Unlock()
	f.work.Wait()
	f.watch.Close()
	return nil
}

// Paths is how many paths the session has.
func (f *Fan) Paths() int { return len(f.lanes) }

// Send sends each datagram by the path that the schedule names. Where too few paths are healthy it sends nothing and
// counts. An error means the session is closed; a path's own trouble is its health.
func (f *Fan) Send(datagrams [][]byte) error {
	if len(datagrams) == 0 {
		return nil
	}
	now := f.now()
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.open {
		return net.ErrClosed
	}
	if f.prober != nil && f.prober.isQuestion(datagrams[0]) && f.enough {
		f.hold = now.Add(handshakeHold)
	}
	for len(datagrams) > 0 {
		if !f.enough {
			f.refused += uint64(len(datagrams))
			return nil
		}
		i, n := -1, len(datagrams)
		if f.rules != nil {
			i, n = f.rules.up(now, datagrams)
		}
		if i >= 0 {
			f.sendRuled(f.lanes[i], now, datagrams[:n])
		} else if n = f.sendScheduled(now, datagrams[:n]); n == 0 {
			f.refused += uint64(len(datagrams))
			return nil
		}
		datagrams = datagrams[n:]
	}
	f.lastSent = now
	f.noteDue(now)
	return nil
}

// refuse counts datagrams that are not sent since the paths are not open yet.
func (f *Fan) refuse(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refused += uint64(n)
}

// sendScheduled sends the first datagrams by the path that the schedule names, and gives how many these were; 0 where
// no path may be used. f.mu is held.
func (f *Fan) sendScheduled(now time.Time, datagrams [][]byte) int {
	if l := f.trial(now); l != nil {
		f.sendOn(l, now, datagrams[:1])
		return 1
	}
	if f.busy(now) {
		f.sendOn(f.lanes[f.current], now, datagrams)
		return len(datagrams)
	}
	i, n, began := f.sched.Take(now, f.usable, len(datagrams))
	if i < 0 {
		return 0
	}
	if began {
		f.turned(i)
	}
	f.sendOn(f.lanes[i], now, datagrams[:n])
	return n
}

// busy reports whether a switch is due and must wait for a gap. f.mu is held.
func (f *Fan) busy(now time.Time) bool {
	if f.o.AtGaps == 0 || f.current < 0 || !f.usable[f.current] || !f.sched.Due(now) {
		return false
	}
	last := f.lastSent
	if heard := f.heardAt(); heard.After(last) {
		last = heard
	}
	return now.Sub(last) < f.o.AtGaps && now.Sub(f.sched.End()) < f.o.Schedule.Every.Period
}

// sendRuled sends by the path that a rule names, or not at all. f.mu is held.
func (f *Fan) sendRuled(l *lane, now time.Time, datagrams [][]byte) {
	if flow, _ := l.currentFlow(); flow == nil {
		f.withheld += uint64(len(datagrams))
		f.note(l, "a rule names this path, which is down: what it matches is dropped")
		return
	}
	if f.current >= 0 {
		f.current = -1 // the server answers there now, so the next unit of the schedule is a switch
		f.sched.Cut()
	}
	f.sendOn(l, now, datagrams)
}

// turned notes that a unit began on path i. f.mu is held.
func (f *Fan) turned(i int) {
	l := f.lanes[i]
	if i != f.current {
		f.current = i
		f.switches++
		l.switches.Add(1)
	}
	if err := l.rotate(); err != nil {
		l.health.Fail(errhint.Reason(err))
	}
}

// noteDue publishes when the running unit ends, so that receivers see without a lock when a switch is overdue. f.mu is
// held.
func (f *Fan) noteDue(now time.Time) {
	due := int64(math.MaxInt64)
	switch end := f.sched.End(); {
	case f.sched.Due(now):
		due = 0
	case !end.IsZero():
		due = end.UnixNano()
	}
	f.due.Store(due)
}

// sendOn sends over one lane, and takes the lane out of use where this machine cannot send by it. f.mu is held.
func (f *Fan) sendOn(l *lane, now time.Time, datagrams [][]byte) {
	err := l.send(now, *f.server.Load(), datagrams)
	if err != nil {
		f.trouble(l, err)
	}
}

// trouble turns a send or receive error into the lane's health. f.mu is held.
func (f *Fan) trouble(l *lane, err error) {
	var u *path.Unreachable
	switch {
	case errors.Is(err, net.ErrClosed):
		return
	case errors.As(err, &u) && u.FromServer(f.server.Load().Addr()):
		f.note(l, "the server refuses: "+u.Error())
	case errors.As(err, &u) && u.Errno == syscall.EMSGSIZE:
		l.mu.Lock()
		l.tooBig = u.Error()
		l.mu.Unlock()
		f.note(l, u.Error())
	case errors.As(err, &u) && u.By.IsValid():
		l.health.Refused(u.Error())
		f.note(l, u.Error())
	case errors.Is(err, syscall.ENOBUFS), errors.Is(err, syscall.ENOMEM):
	default:
		l.health.Fail(errhint.Reason(err))
		l.shut()
	}
	f.judge(f.now())
}

// note logs a line about a lane once in a while at most. f.mu is held.
func (f *Fan) note(l *lane, text string) {
	key := l.spec.Name + ": " + text
	if !f.warned[key] && len(f.warned) < 200 {
		f.warned[key] = true
		f.log.Warn(text, "session", f.o.Session, "path", l.spec.Name)
	}
}
