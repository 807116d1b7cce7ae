package client

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"heddle/disguise/handshake"
	"heddle/disguise/mux"
	"heddle/internal/errhint"
	"heddle/internal/netutil"
	"heddle/path"
	"heddle/path/group"
)

const (
	// linger is how long a link stays open after its last stream.
	linger = 30 * time.Second
	// askPatience is the time for a stream, with the link and the bridge's own connecting.
	askPatience = 30 * time.Second
	// Times between the tries to open a link.
	reopenFirst   = time.Second
	reopenLongest = 30 * time.Second
)

// Many carries streams and flows of datagrams in one link, which is opened with the first of them and closed some time after the last.
type Many struct {
	o Options

	mu      sync.Mutex
	shared  *shared // nil without a link
	opening chan struct{}
	users   int
	rest    *time.Timer
	retry   group.Backoff
	failed  error // why the last link did not open
	closed  bool
}

// shared is a link with its streams.
type shared struct {
	*Session
	streams *mux.Session

	mu    sync.Mutex
	flows map[uint16]*flow
}

// NewMany prepares links to a bridge. It opens nothing.
func NewMany(o Options) (*Many, error) {
	o.mode = handshake.ManyStreams
	if err := o.complete(); err != nil {
		return nil, err
	}
	if _, err := newMembers(o); err != nil {
		return nil, err
	}
	return &Many{o: o}, nil
}

// open opens the link. The bridge's datagrams go to its flows.
func (m *Many) open(ctx context.Context) (*shared, error) {
	s := &shared{flows: map[uint16]*flow{}}
	o := m.o
	o.Link.Datagram = s.take
	var err error
	if s.Session, err = dial(ctx, o); err != nil {
		return nil, err
	}
	if s.streams, err = mux.Client(s.Session); err != nil {
		s.Session.Close()
		return nil, err
	}
	go s.refuse()
	return s, nil
}

// refuse ends a link whose bridge opens streams, which only clients do.
func (s *shared) refuse() {
	if _, err := s.streams.Accept(); err == nil {
		s.streams.Close()
	}
}

// enter returns the link, and opens it if there is none. [Many.leave] ends the use.
func (m *Many) enter(ctx context.Context) (*shared, error) {
	for {
		m.mu.Lock()
		if m.shared != nil && over(m.shared) {
			m.shared = nil
		}
		now := time.Now()
		switch {
		case m.closed:
			m.mu.Unlock()
			return nil, net.ErrClosed
		case m.shared != nil:
			m.users++
			if m.rest != nil {
				m.rest.Stop()
				m.rest = nil
			}
			s := m.shared
			m.mu.Unlock()
			return s, nil
		case m.opening != nil:
			opening := m.opening
			m.mu.Unlock()
			select {
			case <-opening:
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
			if err := m.lastError(); err != nil {
				return nil, err
			}
			continue
		case m.failed != nil && !m.retry.Due(now):
			m.mu.Unlock()
			return nil, m.lastError()
		}
		opening := make(chan struct{})
		m.opening = opening
		m.mu.Unlock()
		go m.reopen(opening)
	}
}

func over(s *shared) bool {
	select {
	case <-s.streams.Done():
		return true
	case <-s.Done():
		return true
	default:
		return false
	}
}

func (m *Many) lastError() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.failed
}

// reopen opens a link for all that wait. It does not end with the first of them.
func (m *Many) reopen(opening chan struct{}) {
	defer close(opening)
	s, err := m.open(context.Background())
	m.mu.Lock()
	defer m.mu.Unlock()
	m.opening, m.failed = nil, err
	switch {
	case err != nil:
		m.retry.Tried(time.Now(), reopenFirst, reopenLongest)
	case m.closed:
		s.streams.Close()
	default:
		m.retry.Reset()
		m.shared = s
		m.restLater()
	}
}

// restLater ends the link some time after its last user. m.mu is held.
func (m *Many) restLater() {
	if m.users == 0 && m.rest == nil && m.shared != nil {
		m.rest = time.AfterFunc(linger, m.end)
	}
}

func (m *Many) leave() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.users--
	m.restLater()
}

func (m *Many) end() {
	m.mu.Lock()
	m.rest = nil
	var s *shared
	if m.users == 0 {
		s, m.shared = m.shared, nil
	}
	m.mu.Unlock()
	if s != nil {
		s.streams.Close()
	}
}

// Open opens the link, unless it is open, and leaves it to its linger.
func (m *Many) Open(ctx context.Context) error {
	_, err := m.enter(ctx)
	if err == nil {
		m.leave()
	}
	return err
}

// Hold keeps a link open until ctx ends, and opens the next one after each that ends. tell hears of each failure, and of nil when
// a link is open.
func (m *Many) Hold(ctx context.Context, tell func(error)) {
	for ctx.Err() == nil {
		s, err := m.enter(ctx)
		if err == nil {
			tell(nil)
			select {
			case <-s.streams.Done():
			case <-ctx.Done():
			}
			m.leave()
			continue
		}
		if ctx.Err() == nil {
			tell(err)
		}
		_ = netutil.Sleep(ctx, reopenFirst)
	}
}

// Close ends the link, and lets none open again.
func (m *Many) Close() error {
	if s := m.closing(); s != nil {
		s.streams.Close()
	}
	return nil
}

// Leave does the same, and returns when the bridge was told. See [Session.Leave].
func (m *Many) Leave() {
	if s := m.closing(); s != nil {
		s.streams.Close()
		s.Session.Leave()
	}
}

// closing lets no link open again, and returns the one that is open, or nil.
func (m *Many) closing() *shared {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	s := m.shared
	m.shared = nil
	if m.rest != nil {
		m.rest.Stop()
	}
	return s
}

// Dial makes the bridge connect to a target. The bridge looks names up.
func (m *Many) Dial(ctx context.Context, to path.Target) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	s, stream, err := m.ask(ctx, func(*shared) mux.Request { return mux.Request{Kind: mux.Connect, To: to} }, path.WantsEarly(ctx))
	if err != nil {
		return nil, m.explain(err, to.String())
	}
	return &streamConn{Stream: stream, many: m, of: s, leave: sync.OnceFunc(m.leave)}, nil
}

// ask opens a stream with a request. If it is early, it does not wait for the answer.
func (m *Many) ask(ctx context.Context, request func(*shared) mux.Request, early bool) (*shared, *mux.Stream, error) {
	s, err := m.enter(ctx)
	if err != nil {
		return nil, nil, err
	}
	stream, err := s.streams.Open()
	if err != nil {
		m.leave()
		return nil, nil, err
	}
	stop := context.AfterFunc(ctx, func() { stream.Close(); _ = stream.SetDeadline(time.Unix(1, 0)) })
	err = stream.Ask(request(s))
	if err == nil && !early {
		err = stream.Answered()
	}
	if !stop() {
		err = context.Cause(ctx)
	}
	if err != nil {
		stream.Close()
		m.leave()
		return nil, nil, err
	}
	return s, stream, nil
}

// explain describes why a target was not reached.
func (m *Many) explain(err error, to string) error {
	if _, known := errors.AsType[*path.Error](err); known {
		return err
	}
	e := &path.Error{What: "bridge " + m.o.Line.Address.String(), Why: "no connection to " + to, Err: err, Hint: errhint.Of(err)}
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		e.Err, e.Why = nil, "it does not answer in time whether it reaches "+to
	case errors.Is(err, mux.Forbidden):
		e.Hint = "the owner of the bridge decides where it leads: see --allow of heddle disguise serve"
	}
	return e
}

// streamConn is a stream that uses the link until it is closed.
type streamConn struct {
	*mux.Stream
	many  *Many
	of    *shared
	leave func()
}

func (c *streamConn) LocalAddr() net.Addr  { return c.of.LocalAddr() }
func (c *streamConn) RemoteAddr() net.Addr { return c.of.RemoteAddr() }

func (c *streamConn) Close() error {
	err := c.Stream.Close()
	c.leave()
	return err
}

// Flow opens a flow of datagrams to an address.
func (m *Many) Flow(ctx context.Context, to netip.AddrPort) (path.Flow, error) {
	ctx, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	f := &flow{to: to, arrived: make(chan []byte, flowQueue), done: make(chan struct{}), leave: sync.OnceFunc(m.leave)}
	s, stream, err := m.ask(ctx, func(s *shared) mux.Request {
		f.of, f.number = s, s.add(f)
		return mux.Request{Kind: mux.Datagrams, Flow: f.number, To: path.At(to)}
	}, false)
	if err != nil {
		if f.of != nil {
			f.of.remove(f)
		}
		return nil, m.explain(err, to.String())
	}
	f.of, f.stream = s, stream
	go f.watch()
	return f, nil
}

// add gives a flow a number that no other flow of the link has.
func (s *shared) add(f *flow) uint16 {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		number := uint16(rand.Uint32())
		if s.flows[number] == nil {
			s.flows[number] = f
			return number
		}
	}
}

func (s *shared) remove(f *flow) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.flows, f.number)
}

// take gives a datagram to its flow. It does not block.
func (s *shared) take(number uint16, datagram []byte) {
	s.mu.Lock()
	f := s.flows[number]
	s.mu.Unlock()
	if f != nil {
		f.take(datagram)
	}
}
