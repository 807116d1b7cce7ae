package stripe

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"heddle/identity"
	"heddle/internal/connlimit"
	"heddle/internal/reliable"
	"heddle/internal/segment"
	"heddle/internal/tlsbatch"
	"heddle/path"
	"heddle/stripe/door"
	"heddle/stripe/share"
)

// ListenOptions configure a [Listener].
type ListenOptions struct {
	Identity identity.Identity
	Accept   func(identity.Key) error // may this key connect; nil refuses all
	// Service decides whether a peer may use a service, and tells the peer its error; nil permits all.
	Service     func(peer identity.Key, service string) error
	MaxSessions int // 0 is 256; one key has at most half
	// Memory limits the bytes that all sessions hold unread or out of order, beyond about 4 MiB each; 0 is 1 GiB.
	Memory int64
	// Window, Patience and MinRate are as in [Options].
	Window   int
	Patience time.Duration
	MinRate  int
	Log      *slog.Logger
	KeyLog   io.Writer
}

const (
	defaultSessions = 256
	defaultMemory   = 1 << 30
	maxRemembered   = 1024
	rememberedFor   = 2 * time.Minute
)

// Complete returns the options with defaults filled in.
func (o ListenOptions) Complete() ListenOptions {
	o.MaxSessions = cmp.Or(o.MaxSessions, defaultSessions)
	o.Memory = cmp.Or(o.Memory, defaultMemory)
	o.Patience = cmp.Or(o.Patience, DefaultPatience)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	if o.Accept == nil {
		o.Accept = func(identity.Key) error { return errors.New("nobody is let in") }
	}
	return o
}

// Listener accepts sessions whose members arrive at a [net.Listener].
type Listener struct {
	*door.Door[*Conn]
	o ListenOptions

	mu       sync.Mutex
	sessions map[[16]byte]*Conn
	past     map[[16]byte]ending
	memory   *reliable.Budget
}

// ending records how a session ended, to tell members that arrive late.
type ending struct {
	at      time.Time
	inOrder bool
	peer    identity.Key
}

// NewListener takes over l, which needs a [net.ListenConfig] with SetMultipathTCP(false): a member must stay on its path.
func NewListener(l net.Listener, o ListenOptions) *Listener {
	sl := &Listener{Door: door.New[*Conn](l), o: o.Complete(), sessions: map[[16]byte]*Conn{}, past: map[[16]byte]ending{}}
	sl.memory = reliable.NewBudget(sl.o.Memory)
	config, err := sl.o.Identity.Server(sl.o.Accept, Protocol)
	if err != nil {
		_ = sl.Fail(err)
		return sl
	}
	// Observers of two paths could link the client by a ticket that it shows twice.
	config.SessionTicketsDisabled = true
	config.DynamicRecordSizingDisabled, config.KeyLogWriter = true, sl.o.KeyLog
	sl.Serve(func(_ context.Context, c *connlimit.Place, leave func()) {
		k := newLink(c.NetConn(), tlsbatch.Server(c, config))
		defer k.shut()
		if err := sl.greet(k, c.Proved, leave); err != nil {
			sl.o.Log.Debug("member ended", "from", c.RemoteAddr(), "why", err)
		}
	})
	return sl
}

func (sl *Listener) greet(k *link, proved, leave func()) error {
	if err := k.handshake(handshakeTime); err != nil {
		return err
	}
	peer, err := keyOf(k)
	if err != nil {
		return err
	}
	proved()
	kind, body, err := k.reader.Next(takeBuffer)
	if err != nil {
		return err
	}
	if kind != segment.KindHello {
		return errors.New("it does not begin with a hello")
	}
	h, err := segment.ParseHello(body)
	if err != nil {
		return sl.refuse(k, segment.Close{Code: segment.Refused, Why: err.Error()})
	}
	c, last := sl.session(h, peer)
	if last != nil {
		return sl.refuse(k, *last)
	}
	leave()
	return c.members[h.Member].welcome(k, h)
}

// refuse sends a close and makes sure that the peer can read it.
func (sl *Listener) refuse(k *link, last segment.Close) error {
	if _, err := k.tls.Write(last.Append(nil)); err != nil {
		return err
	}
	if err := k.tls.CloseWrite(); err != nil {
		return err
	}
	// If the socket is closed with unread data, the kernel resets the connection and drops what is not yet sent.
	_ = k.raw.SetReadDeadline(time.Now().Add(lastWords))
	_, _ = io.Copy(io.Discard, io.LimitReader(k.tls, 2*initialLimit))
	return errors.New("refused: " + last.Why)
}

// session finds or creates the session of a hello, or returns the close to answer with.
func (sl *Listener) session(h segment.Hello, peer identity.Key) (*Conn, *segment.Close) {
	refused := func(why string) (*Conn, *segment.Close) { return nil, &segment.Close{Code: segment.Refused, Why: why} }
	s, err := sl.settings(h, peer)
	if err != nil {
		return refused(err.Error())
	}
	sl.mu.Lock()
	defer sl.mu.Unlock()
	if c := sl.sessions[h.Session]; c != nil {
		if c.peer != peer || !c.same(s) {
			return refused("another session has this id")
		}
		return c, nil
	}
	if past, ok := sl.past[h.Session]; ok && past.peer == peer {
		if past.inOrder {
			return nil, &segment.Close{Code: segment.Complete}
		}
		return nil, &segment.Close{Code: segment.Failed, Why: "the session is over"}
	}
	if h.Flags&segment.Resume != 0 {
		return refused("the session is not known here any more")
	}
	if why := sl.full(peer); why != "" {
		return refused(why)
	}
	if sl.o.Service != nil {
		if err := sl.o.Service(peer, h.Service); err != nil {
			return refused(err.Error())
		}
	}
	c, err := sl.open(s)
	if err != nil {
		return refused(err.Error())
	}
	return c, nil
}

// full returns why a peer gets no more sessions, or "". sl.mu is held.
func (sl *Listener) full(peer identity.Key) string {
	own := 0
	for _, c := range sl.sessions {
		if c.peer == peer {
			own++
		}
	}
	switch {
	case len(sl.sessions) >= sl.o.MaxSessions:
		return "too many sessions"
	case own >= (sl.o.MaxSessions+1)/2:
		return "too many sessions of yours"
	}
	return ""
}

func (sl *Listener) settings(h segment.Hello, peer identity.Key) (settings, error) {
	scheme, err := share.Parse(h.Shares)
	if err != nil {
		return settings{}, err
	}
	s := settings{id: h.Session, peer: peer, service: h.Service, schedule: h.Schedule, scheme: scheme, members: int(h.Members),
		minMembers: int(h.MinMembers), degrade: h.Flags&segment.Degrade != 0, segment: int(h.Segment), patience: sl.o.Patience,
		window: sl.o.Window, minRate: sl.o.MinRate, log: sl.o.Log}
	s.fill()
	if why, _ := s.wrong(); why != "" {
		return settings{}, errors.New(why)
	}
	return s, nil
}

// same reports whether two hellos belong to one session.
func (s *settings) same(t settings) bool {
	return s.service == t.service && s.schedule == t.schedule && s.scheme == t.scheme && s.members == t.members && s.minMembers == t.minMembers &&
		s.degrade == t.degrade && s.segment == t.segment
}

// open creates a session. sl.mu is held.
func (sl *Listener) open(s settings) (*Conn, error) {
	s.memory = sl.memory.Loan()
	s.ended = func(inOrder bool) {
		sl.mu.Lock()
		defer sl.mu.Unlock()
		s.memory.End()
		delete(sl.sessions, s.id)
		sl.remember(s.id, ending{time.Now(), inOrder, s.peer})
	}
	names := make([]string, s.members)
	for i := range names {
		names[i] = strconv.Itoa(i + 1)
	}
	c, err := newConn(s, names)
	if err != nil {
		return nil, err
	}
	sl.sessions[s.id] = c
	go sl.deliver(c)
	return c, nil
}

// deliver hands the session to Accept once its required paths are up.
func (sl *Listener) deliver(c *Conn) {
	select {
	case <-c.begun:
		sl.Deliver(c, c.over)
	case <-c.over:
	case <-sl.Closed():
		c.Abort(door.ClosedWhy)
	}
}

// remember stores how a session ended. sl.mu is held.
func (sl *Listener) remember(id [16]byte, e ending) {
	maps.DeleteFunc(sl.past, func(_ [16]byte, past ending) bool { return e.at.Sub(past.at) > rememberedFor })
	if len(sl.past) >= maxRemembered {
		byTime := func(a, b [16]byte) int { return sl.past[a].at.Compare(sl.past[b].at) }
		delete(sl.past, slices.MinFunc(slices.Collect(maps.Keys(sl.past)), byTime))
	}
	sl.past[id] = e
}

// welcome answers a hello and serves the connection.
func (m *member) welcome(k *link, h segment.Hello) error {
	c := m.c
	c.mu.Lock()
	if c.finished || h.Generation < m.generation {
		c.mu.Unlock()
		return &path.Error{What: c.errorSubject(), Why: "a newer connection of this member is here"}
	}
	m.generation = h.Generation + 1
	c.out.Allow(h.Limit)
	if m.link != nil {
		m.health.verdict = "the other side connected anew"
		m.link.shut()
	}
	c.mu.Unlock()
	select {
	case <-m.idle:
	case <-time.After(handshakeTime):
		return errors.New("the connection before this one does not end")
	}
	c.mu.Lock()
	_, limit := c.in.Ack()
	w := segment.Welcome{Limit: limit, Frames: m.received}
	m.observer = door.Source(k.raw)
	c.mu.Unlock()
	_, err := k.tls.Write(w.Append(nil))
	if err == nil {
		err = k.raw.SetDeadline(time.Time{})
	}
	if err != nil {
		m.idle <- struct{}{}
		return err
	}
	return m.run(k, h.Frames)
}

// Sessions returns the current sessions, oldest first.
func (sl *Listener) Sessions() []*Conn {
	sl.mu.Lock()
	defer sl.mu.Unlock()
	return slices.SortedFunc(maps.Values(sl.sessions), func(a, b *Conn) int { return a.since.Compare(b.since) })
}
