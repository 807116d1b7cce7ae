package split

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"heddle/internal/netutil"
	"heddle/path"
)

// RelayOptions configure a relay. Each client address has a session and a schedule of its own.
type RelayOptions struct {
	Options
	Listen      netip.AddrPort // where clients send to
	Idle        time.Duration  // ends a session without traffic for this long; 0 means [DefaultIdle]
	MaxSessions int            // bounds the table; 0 means [DefaultMaxSessions]
}

// Defaults of a relay. A session may be answered while a NAT keeps its mapping, for five minutes (RFC 4787, REQ-5).
const (
	DefaultIdle        = 5 * time.Minute
	DefaultMaxSessions = 64
)

// A session that the server never answered ends soon and is evictable after evictAfter, so that forged addresses cost only a
// bounded table. An answered session is evictable after evictQuiet, since a browser abandons connections without notice.
// Common QUIC clients time out by then. WireGuard and Mosh resume from new ports.
const (
	unansweredIdle = 15 * time.Second
	evictAfter     = time.Second
	evictQuiet     = 30 * time.Second
	sweepEvery     = time.Second
	relayBatch     = 4
)

// Relay takes datagrams from local clients and sends them to one server over several paths.
type Relay struct {
	o      RelayOptions
	log    *slog.Logger
	socket *path.Socket
	places *places
	now    func() time.Time

	nameservers []netip.AddrPort

	mu       sync.Mutex
	sessions map[netip.AddrPort]*relaySession
	full     bool // the table was full when the last client came
	work     sync.WaitGroup
}

type relaySession struct {
	session *Session
	client  netip.AddrPort
	began   time.Time
	used    time.Time // when the client last sent; guarded by the relay's lock

	ctx     context.Context // for opening the paths
	stop    context.CancelFunc
	begun   chan struct{} // closed once the paths are open or have failed
	mu      sync.Mutex
	open    bool
	waiting [][]byte // what the client sent before the paths were open
}

// waitingLimit is how many datagrams wait for the paths to open. It exceeds a QUIC client's first flight.
const waitingLimit = 32

// send sends a client's datagrams, or keeps them until the paths are open.
func (s *relaySession) send(datagrams [][]byte) {
	s.mu.Lock()
	if s.open {
		s.mu.Unlock()
		s.session.Send(datagrams) // fails only while the session ends
		return
	}
	defer s.mu.Unlock()
	for i, d := range datagrams {
		if len(s.waiting) == waitingLimit {
			s.session.refuse(len(datagrams) - i)
			return
		}
		s.waiting = append(s.waiting, bytes.Clone(d))
	}
}

// begin opens the paths and sends the waiting datagrams.
func (s *relaySession) begin() error {
	defer close(s.begun)
	if err := s.session.Open(s.ctx); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = true
	waiting := s.waiting
	s.waiting = nil
	return s.session.Send(waiting)
}

// NewRelay checks the options, resolves the server and starts to listen.
func NewRelay(ctx context.Context, o RelayOptions) (*Relay, error) {
	o.Idle, o.MaxSessions = cmp.Or(o.Idle, DefaultIdle), cmp.Or(o.MaxSessions, DefaultMaxSessions)
	o.Log = cmp.Or(o.Log, slog.Default())
	var err error
	if o.paths, err = o.Paths(); err != nil {
		return nil, err
	}
	first, err := NewSession(o.Options)
	if err != nil {
		return nil, err
	}
	if err := first.Resolve(ctx); err != nil {
		return nil, err
	}
	if err := o.checkLoop(); err != nil {
		return nil, err
	}
	r := &Relay{o: o, log: o.Log, places: first.places, nameservers: first.nameservers, now: time.Now, sessions: map[netip.AddrPort]*relaySession{}}
	if r.socket, err = path.Listen(o.Listen); err != nil {
		hint := "choose another address, such as 127.0.0.1:51820"
		switch {
		case errors.Is(err, syscall.EADDRINUSE):
			hint = "another program listens there: choose another port"
		case errors.Is(err, syscall.EADDRNOTAVAIL):
			hint = "no device here has that address: choose one of this machine's, such as 127.0.0.1"
		}
		return nil, &path.Error{What: "listen on " + o.Listen.String(), Why: "it cannot listen there", Hint: hint, Err: err}
	}
	return r, nil
}

// checkLoop refuses a tunnel whose own packets would come back into the relay.
func (o RelayOptions) checkLoop() error {
	for name, way := range o.paths {
		to, err := netip.ParseAddrPort(way.Describe().Endpoint)
		if err != nil || to.Port() != o.Listen.Port() {
			continue
		}
		here := to.Addr() == o.Listen.Addr() || o.Listen.Addr().IsUnspecified() && to.Addr().IsLoopback()
		if here {
			return &path.Error{What: "path " + name, Why: fmt.Sprintf("its own packets go to %v, where this relay listens", to),
				Hint: "let the relay listen elsewhere, or give the tunnel's own endpoint"}
		}
	}
	return nil
}

// Addr returns where clients send to.
func (r *Relay) Addr() netip.AddrPort { return r.socket.LocalAddr() }

// Run serves until ctx ends or the socket fails.
func (r *Relay) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { r.socket.Close() })
	defer stop()
	watch, err := path.NewWatch() // keeps the kernel's answers from one session to the next
	if err == nil {
		defer watch.Close()
	}
	sweeping, cancel := context.WithCancel(ctx)
	r.work.Go(func() {
		for netutil.Sleep(sweeping, sweepEvery) == nil {
			r.expire()
		}
	})
	err = r.serve(ctx)
	cancel()
	r.socket.Close()
	r.mu.Lock()
	for client := range r.sessions {
		r.end(client)
	}
	r.mu.Unlock()
	r.work.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (r *Relay) serve(ctx context.Context) error {
	into := make([]path.Inbound, relayBatch)
	var datagrams [][]byte
	for {
		n, err := r.socket.Receive(into)
		if errors.Is(err, net.ErrClosed) {
			return err
		}
		if err != nil {
			r.log.Debug("a client cannot be reached", "error", err)
			continue
		}
		for _, in := range into[:n] {
			s := r.session(ctx, in.From)
			if s == nil || len(in.Data) == 0 {
				continue
			}
			datagrams = path.AppendDatagrams(datagrams[:0], in)
			s.send(datagrams)
		}
	}
}

// session finds or begins the session of a client. It returns nil if the table is full.
func (r *Relay) session(ctx context.Context, client netip.AddrPort) *relaySession {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	if s := r.sessions[client]; s != nil {
		s.used = now
		return s
	}
	if len(r.sessions) >= r.o.MaxSessions && !r.evict(now) {
		if !r.full {
			r.log.Warn("no room for another client", "sessions", len(r.sessions), "hint", "raise --max-sessions")
		}
		r.full = true
		return nil
	}
	r.full = false
	s, err := r.begin(ctx, client, now)
	if err != nil {
		r.log.Error("cannot begin a session", "client", client, "error", err)
		return nil
	}
	return s
}

func (r *Relay) begin(ctx context.Context, client netip.AddrPort, now time.Time) (*relaySession, error) {
	o := r.o.Options
	o.Session = r.Addr().String() + "/" + client.String()
	session, err := NewSession(o)
	if err != nil {
		return nil, err
	}
	at := r.places.first()
	session.server.Store(&at)
	session.places = r.places
	session.nameservers = r.nameservers
	s := &relaySession{session: session, client: client, began: now, used: now, begun: make(chan struct{})}
	s.ctx, s.stop = context.WithCancel(ctx)
	r.sessions[client] = s
	r.work.Go(func() {
		if err := s.begin(); err != nil && !errors.Is(err, net.ErrClosed) {
			r.log.Error("cannot open a session", "client", client, "error", err)
		}
	})
	order := session.reorderer(func(datagrams [][]byte) { r.answer(client, datagrams) })
	for i := range session.Paths() {
		r.work.Go(func() { r.back(s, i, order) })
	}
	return s, nil
}

// back carries what arrives by one path to the client, through order unless that is nil.
func (r *Relay) back(s *relaySession, i int, order *reorderer) {
	into := make([]path.Inbound, 2)
	var datagrams [][]byte
	for {
		n, err := s.session.Receive(i, into)
		if err != nil {
			return
		}
		if order != nil {
			order.arrived(i, into[:n])
			continue
		}
		datagrams = path.AppendDatagrams(datagrams[:0], into[:n]...)
		r.answer(s.client, datagrams)
	}
}

func (r *Relay) answer(client netip.AddrPort, datagrams [][]byte) {
	if _, err := r.socket.SendTo(client, datagrams); err != nil {
		r.log.Debug("the client cannot be reached", "client", client, "error", err)
	}
}

// evict ends the oldest unanswered session, or else the one quiet longest, unless it is too young. r.mu is held.
func (r *Relay) evict(now time.Time) bool {
	var mute, quiet *relaySession
	var last time.Time // when quiet last sent or heard something
	for _, s := range r.sessions {
		used := s.session.group.LastHeard()
		if used.IsZero() {
			if mute == nil || s.began.Before(mute.began) {
				mute = s
			}
			continue
		}
		if s.used.After(used) {
			used = s.used
		}
		if quiet == nil || used.Before(last) {
			quiet, last = s, used
		}
	}
	switch {
	case mute != nil && now.Sub(mute.began) >= evictAfter:
		r.end(mute.client)
	case mute == nil && quiet != nil && now.Sub(last) >= evictQuiet:
		r.log.Info("session ended: quiet, and another client needs the room", "client", quiet.client)
		r.end(quiet.client)
	default:
		return false
	}
	return true
}

// end ends one session. r.mu is held.
func (r *Relay) end(client netip.AddrPort) {
	s := r.sessions[client]
	delete(r.sessions, client)
	s.stop()
	r.work.Go(func() {
		<-s.begun
		s.session.Close()
	})
}

// expire ends idle sessions.
func (r *Relay) expire() {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	for client, s := range r.sessions {
		heard := s.session.group.LastHeard()
		idle := r.o.Idle
		if heard.IsZero() {
			idle = min(idle, unansweredIdle)
		}
		if now.Sub(s.used) > idle && now.Sub(heard) > idle {
			r.log.Info("session ended: idle", "client", client)
			r.end(client)
		}
	}
}

// Status returns the status of each session, the oldest first.
func (r *Relay) Status() []Status {
	r.mu.Lock()
	var sessions []*Session
	for _, s := range r.sessions {
		sessions = append(sessions, s.session)
	}
	r.mu.Unlock()
	out := make([]Status, 0, len(sessions))
	for _, s := range sessions {
		out = append(out, s.Status("relay"))
	}
	slices.SortFunc(out, func(a, b Status) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Session, b.Session)) })
	return out
}
