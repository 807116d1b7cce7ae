// Package split sends one datagram session over several paths to an unmodified server. The schedule chooses the path of each
// packet (CoMPS, section 3). [NewBind] splits an embedded wireguard-go; [Relay] serves any program that speaks UDP.
//
// It fails closed: with fewer healthy paths than required, it sends nothing. It hides nothing from an observer of all paths,
// and each observer still sees that packets are exchanged with the server.
package split

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
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
	"heddle/path/group"
	"heddle/path/resolve"
	"heddle/schedule"
)

// Session sends each datagram of one conversation over the path that its schedule chooses. Methods may be called concurrently.
type Session struct {
	o       Options
	log     *slog.Logger
	group   *group.Group
	members []*member // those of the schedule in its order, then those beside it
	loss    *lossMeter
	limit   limit
	id      string // identifies the session to proxies that carry several of its paths
	since   time.Time
	host    resolve.Server
	server  atomic.Pointer[netip.AddrPort]
	places  *places
	prober  prober                    // nil if the server cannot be asked
	loaded  atomic.Pointer[time.Time] // when the server last asked for a cookie
	now     func() time.Time

	nameservers []netip.AddrPort // this machine's, read before a tunnel changed them

	due    atomic.Int64  // when the running unit ends, Unix nanoseconds
	wake   chan struct{} // wakes the pacer: the unit is over and nothing has gone up yet, or the pacer is asleep
	asleep atomic.Bool
	stop   context.CancelFunc
	work   sync.WaitGroup

	// What [Session.tend] knows of the server's place. It belongs to that goroutine.
	searching bool
	found     chan evidence
	heardAt   netip.AddrPort // where the session last heard the server, or began
	back      group.Backoff  // of the questions at the first address

	mu       sync.Mutex
	open     bool
	sched    *schedule.Schedule
	rules    *ruler // nil without rules
	shakes   handshakes
	shook    []bool // members that carried a QUIC handshake
	drain    drain
	auto     auto
	usable   []bool // members of the schedule
	enough   bool
	current  int
	switches uint64
	refused  uint64 // datagrams not sent because too few paths were healthy
	withheld uint64 // datagrams not sent because the path that a rule names was down
	lastSent time.Time
	offered  time.Time // when the program last sent, even if that was refused
	paused   time.Time // when it last began to send again after a pause
	lastUp   time.Time // last arrival
	// unanswered is when the session sent first without an answer since, as of the last look; zero if there was one.
	unanswered time.Time
	refusal    string // what the server's machine said last, and when
	refusedAt  time.Time
	hold       time.Time // no probes before
	tried      *member   // the member whose trial takes the next datagrams, or nil
	spared     [][]byte  // the newest datagrams that were refused, for a trial
	cookied    *member   // by which a relay's program got its newest WireGuard cookie; nil without one
	nudge      func()
	resolved   time.Time // start of the last search
	settled    time.Time // when the server was last heard, or sought at another address
}

// NewSession validates the options and makes the paths. It sends nothing.
func NewSession(o Options) (*Session, error) {
	if _, err := group.CheckMinPaths(o.Session, len(o.Via), o.MinPaths); err != nil {
		return nil, err
	}
	host, err := resolve.Parse(o.To)
	if err != nil {
		return nil, err
	}
	o.Log = cmp.Or(o.Log, slog.Default())
	sched, err := schedule.New(o.Schedule, len(o.Via))
	if err != nil {
		return nil, err
	}
	paths := o.paths
	if paths == nil {
		if paths, err = o.Paths(); err != nil {
			return nil, err
		}
	}
	s := &Session{o: o, log: o.Log, sched: sched, host: host, loss: newLossMeter(len(o.Via) + len(o.Beside)), id: rand.Text(), since: time.Now(), now: time.Now, current: -1,
		usable: make([]bool, len(o.Via)), wake: make(chan struct{}, 1), places: &places{}, found: make(chan evidence)}
	s.due.Store(math.MaxInt64)
	s.drain.longest = o.Drain
	if o.Schedule.Every.Auto {
		s.drain.longest = cmp.Or(o.Drain, autoDrain)
	}
	s.drain.await(-1)
	s.limit.datagram.Store(math.MaxInt64)
	s.group, err = group.New(group.Options{Session: o.Session, Specs: o.members(), Counted: len(o.Via), Paths: paths, MinPaths: o.MinPaths, Degrade: o.Degrade, Log: o.Log})
	if err != nil {
		return nil, err
	}
	for _, m := range s.group.Members {
		s.members = append(s.members, newMember(m, o))
	}
	s.shook = make([]bool, len(s.members))
	if s.rules, err = newRuler(o.Rules, s.members, host.Port); err != nil {
		return nil, err
	}
	return s, s.checkMTU()
}

// Open looks up the server's name if necessary, opens the paths and waits for them for up to five seconds. Until Close, the
// session keeps trying to open the others.
func (s *Session) Open(ctx context.Context) error {
	if s.server.Load() == nil {
		if err := s.Resolve(ctx); err != nil {
			return err
		}
	}
	s.mu.Lock()
	if s.open {
		s.mu.Unlock()
		return nil
	}
	s.open = true
	session := path.WithSession(context.Background(), s.id)
	if (s.o.Reorder > 0 || s.o.Schedule.Every.Auto) && s.prober == nil { // WireGuard counts by itself
		session = path.WithOrder(session)
	}
	tending, cancel := context.WithCancel(session)
	s.stop = cancel
	at := *s.server.Load()
	s.places.add(at)
	s.heardAt, s.searching = at, false
	opened := s.group.Open(tending, at)
	s.asleep.Store(true)
	s.work.Go(func() { s.tend(tending) })
	s.work.Go(func() { s.pace(tending) })
	s.mu.Unlock()

	patience, enough := context.WithTimeout(ctx, firstPatience)
	defer enough()
	defer context.AfterFunc(tending, enough)()
	for range s.members {
		select {
		case <-opened:
		case <-patience.Done():
		}
	}
	s.measure()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.judge(s.now())
	return nil
}

// firstPatience is how long Open waits for all paths before the session begins with those that are open.
const firstPatience = 5 * time.Second

// Close closes the flows. Open may be called again.
func (s *Session) Close() error {
	s.mu.Lock()
	if !s.open {
		s.mu.Unlock()
		return nil
	}
	s.open = false
	s.drain.drop()
	s.stop()
	s.mu.Unlock()
	s.work.Wait()
	return s.group.Close()
}

// Paths returns the number of paths of the session.
func (s *Session) Paths() int { return len(s.members) }

// Send sends each datagram over the path that the schedule chooses. With too few healthy paths it sends nothing and counts
// the datagrams as refused. An error means that the session is closed; an error of one path only changes its health.
func (s *Session) Send(datagrams [][]byte) error {
	if len(datagrams) == 0 {
		return nil
	}
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.open {
		return net.ErrClosed
	}
	if now.Sub(s.offered) >= PauseLength {
		s.paused = now
	}
	s.offered = now
	if datagrams = s.fitting(datagrams); len(datagrams) == 0 {
		return nil
	}
	if s.prober != nil && s.prober.isQuestion(datagrams[0]) && s.enough {
		s.hold = now.Add(handshakeHold)
	}
	for len(datagrams) > 0 {
		if !s.enough {
			s.refuseAll(now, datagrams)
			return nil
		}
		n := s.sendNext(now, datagrams)
		if n == 0 {
			s.refused += uint64(len(datagrams))
			return nil
		}
		datagrams = datagrams[n:]
	}
	s.lastSent = now
	s.noteDue(now)
	return nil
}

// refuse counts datagrams that are not sent because the paths are not open yet.
func (s *Session) refuse(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused += uint64(n)
}

// sendNext sends the first datagrams, as a rule, a QUIC handshake or the schedule decides. It returns their number, or 0 without
// a path. s.mu is held.
func (s *Session) sendNext(now time.Time, datagrams [][]byte) int {
	if s.prober != nil && s.rules == nil { // WireGuard
		return s.sendScheduled(now, datagrams)
	}
	shake, n := s.shakes.sent(now, datagrams)
	if s.shakes.limited.CompareAndSwap(true, false) {
		s.group.Warn("a QUIC handshake was not confirmed within %v or %d datagrams of the client, and its path may change from now on", handshakeLimit, handshakePackets)
	}
	if shake != nil {
		s.validates()
	}
	if s.rules != nil {
		var i int
		if i, n = s.rules.up(now, n, shake != nil || isLong(datagrams[0])); i >= 0 {
			if shake != nil {
				shake.path, s.shook[i] = i, true
			}
			s.sendRuled(s.members[i], now, datagrams[:n])
			return n
		}
	}
	if shake != nil {
		return s.sendShake(shake, now, datagrams[:n])
	}
	return s.sendScheduled(now, datagrams[:n])
}

// sendShake sends datagrams of a QUIC handshake that is not confirmed, over the path on which it began. Another path takes
// over only if nothing comes back by that one. s.mu is held.
func (s *Session) sendShake(shake *handshake, now time.Time, datagrams [][]byte) int {
	counts := shake.path == s.current && !s.sched.Due(now)
	if shake.path < 0 || s.troubled(shake.path) || counts {
		i, n, began := s.sched.Take(now, s.usable, len(datagrams))
		if i < 0 {
			return 0
		}
		if began {
			s.turned(i)
		}
		shake.path, datagrams = i, datagrams[:n]
	}
	s.shook[shake.path] = true
	s.sendOn(s.members[shake.path], now, datagrams)
	return len(datagrams)
}

// troubled reports whether a member may be dead. s.mu is held.
func (s *Session) troubled(i int) bool {
	state, _ := s.members[i].Health.State()
	return s.members[i].Current() == nil || state != path.Up && state != path.Unproven
}

// sendScheduled sends the first datagrams over the scheduled path. It returns their number, or 0 without one. s.mu is held.
func (s *Session) sendScheduled(now time.Time, datagrams [][]byte) int {
	l, n := s.withCookie(datagrams)
	if l != nil {
		s.sendRuled(l, now, datagrams[:n])
		return n
	}
	datagrams = datagrams[:n]
	if n := s.try(now, datagrams); n > 0 {
		return n
	}
	if s.busy(now) {
		s.sendDraining(s.current, now, datagrams)
		return len(datagrams)
	}
	i, n, began := s.sched.Take(now, s.usable, len(datagrams))
	if i < 0 {
		return 0
	}
	if began {
		s.turned(i)
	}
	s.sendDraining(i, now, datagrams[:n])
	return n
}

// busy reports whether a switch is due and must wait for a gap. s.mu is held.
func (s *Session) busy(now time.Time) bool {
	if s.o.AtGaps == 0 || s.current < 0 || !s.usable[s.current] || !s.sched.Due(now) {
		return false
	}
	last := s.lastSent
	if heard := s.group.LastHeard(); heard.After(last) {
		last = heard
	}
	return now.Sub(last) < s.o.AtGaps && now.Sub(s.sched.End()) < s.o.Schedule.Every.Period
}

// sendRuled sends over the path that a rule names, or drops the datagrams if that path is down. s.mu is held.
func (s *Session) sendRuled(l *member, now time.Time, datagrams [][]byte) {
	if l.Current() == nil {
		s.withheld += uint64(len(datagrams))
		s.group.Note(l.Member, "a rule names this path, which is down: what it matches is dropped")
		return
	}
	if s.current >= 0 {
		s.current = -1 // the server answers there now, so the next unit of the schedule is a switch
		s.sched.Cut()
	}
	s.sendOn(l, now, datagrams)
}

// turned records that a unit began on path i. s.mu is held.
func (s *Session) turned(i int) {
	l := s.members[i]
	if i != s.current {
		s.beginDrain(i)
		s.current = i
		s.switches++
		l.switches.Add(1)
	}
	if s.shakes.on(i) {
		return // the port, too, stays until a handshake on it is confirmed
	}
	if err := l.Rotate(); err != nil && !errors.Is(err, net.ErrClosed) { // a flow closed meanwhile is opened again anyway
		l.Health.Fail(errhint.Reason(err))
		l.Shut()
	}
}

// noteDue publishes the end of the running unit for receivers, which take no lock. s.mu is held.
func (s *Session) noteDue(now time.Time) {
	due := int64(math.MaxInt64)
	switch end := s.sched.End(); {
	case s.sched.Due(now):
		due = 0
	case !end.IsZero():
		due = end.UnixNano()
	}
	s.due.Store(due)
}

// sendOn sends over one member, and stops using it if this machine cannot send over it. s.mu is held.
func (s *Session) sendOn(l *member, now time.Time, datagrams [][]byte) {
	s.transmit(l, now, s.signed(l, now, datagrams))
}

// transmit is [Session.sendOn] for datagrams that have their cookie. s.mu is held.
func (s *Session) transmit(l *member, now time.Time, datagrams [][]byte) {
	err := l.send(now, *s.server.Load(), datagrams)
	if err != nil {
		s.trouble(l, err)
	}
}

// trouble turns a send or receive error into the member's health. s.mu is held.
func (s *Session) trouble(l *member, err error) {
	var u *path.Unreachable
	switch {
	case errors.Is(err, net.ErrClosed): // the member is being reopened
	case errors.As(err, &u) && u.FromServer(s.server.Load().Addr()):
		s.group.Note(l.Member, "the server refuses: "+u.Error())
		s.refusal, s.refusedAt = u.Error(), s.now()
	case errors.As(err, &u) && u.Errno == syscall.EMSGSIZE:
		s.reported(l, u)
	case errors.As(err, &u) && u.By.IsValid():
		l.Health.Refused(u.Error())
		s.group.Note(l.Member, u.Error())
	case errors.Is(err, syscall.ENOBUFS), errors.Is(err, syscall.ENOMEM):
	default:
		l.Health.Fail(errhint.Reason(err))
		l.Shut()
	}
	s.judge(s.now())
}
