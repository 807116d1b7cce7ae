// Package client opens disguised links to a bridge, and keeps their cover connections open over one or several paths. It has
// the kind of path disguise:FILE.
//
// Do not use it to hide from the bridge, which sees its clients' addresses and where they go.
package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"heddle/disguise/cover"
	"heddle/disguise/handshake"
	"heddle/disguise/link"
	"heddle/internal/errhint"
	"heddle/path"
	"heddle/schedule"
)

// Defaults and limits of [Options].
const (
	DefaultConnections = 4
	MaxConnections     = 32
)

// answerPatience is the time for a link to open, if the caller's context has no deadline.
const answerPatience = 20 * time.Second

// Options configure links to one bridge.
type Options struct {
	Line        handshake.Line
	Covers      []Cover // what its connections look like
	Datagrams   bool    // the covers are over UDP
	Connections int     // that a link has at a time; 0 is the default
	Bytes       int64   // the limit of one connection, which is replaced before it ends; 0 if there is none
	Link        link.Options
	// Paths are where cover connections leave. The schedule draws one for each connection, and none leaves another way.
	Paths    []Path
	Schedule schedule.Config
	MinPaths int // paths that must work before anything is sent; 0 means 2, or 1 if there is one
	Degrade  bool
	Log      *slog.Logger

	mode byte
}

// Cover is one cover of a link. Those of one link share its connections by their weights.
type Cover struct {
	Name string
	cover.Factory
	cover.Share
}

// complete fills in defaults.
func (o *Options) complete() error {
	if o.Connections == 0 {
		o.Connections = DefaultConnections
	}
	if o.Connections < 1 || o.Connections > MaxConnections {
		return &path.Error{What: fmt.Sprintf("%d connections", o.Connections), Why: "a link cannot have so many", Hint: fmt.Sprintf("1 to %d", MaxConnections)}
	}
	if len(o.Covers) == 0 {
		return &path.Error{What: "disguise", Why: "it has no cover"}
	}
	if len(o.Paths) == 0 {
		o.Paths = []Path{{Name: "system", Path: path.NewSystem(0)}}
	}
	o.Log = cmp.Or(o.Log, slog.Default())
	o.Link.Bridge = o.Line.Key
	o.Link.Remote = net.TCPAddrFromAddrPort(o.Line.Address)
	return nil
}

// Session is one link, and what keeps it open. It is a [net.Conn] with CloseWrite.
type Session struct {
	*link.Link
	o       Options
	members *members
	since   time.Time
	wake    chan struct{}
	ended   chan struct{} // closed when all connections are
	carried uint64        // bytes and datagrams of use, when keep looked last
	used    time.Time     // when keep saw more of them

	mu    sync.Mutex
	live  map[*carrier]bool
	opens int // connections that are being opened
	// fruitless counts the last connections on which nothing arrived.
	fruitless int
	work      sync.WaitGroup
}

// Dial opens a link to the bridge's one target. It returns once the bridge answered.
func Dial(ctx context.Context, o Options) (*Session, error) {
	o.mode = handshake.OneTarget
	return dial(ctx, o)
}

func dial(ctx context.Context, o Options) (*Session, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	m, err := newMembers(o)
	if err != nil {
		return nil, err
	}
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, answerPatience)
		defer cancel()
	}
	ready, err := m.prove(ctx)
	if err != nil {
		return nil, err
	}
	s := &Session{o: o, members: m, since: time.Now(), wake: make(chan struct{}, 1), ended: make(chan struct{}), live: map[*carrier]bool{}}
	if err := s.begin(ctx, ready); err != nil {
		return nil, err
	}
	go s.keep(ready)
	return s, nil
}

// prove connects by each path, before anything is sent by any. It fails if too few paths lead to the bridge.
func (m *members) prove(ctx context.Context) (ready map[*member]proved, err error) {
	ready = map[*member]proved{}
	failed := make([]error, len(m.all))
	var mu sync.Mutex
	var work sync.WaitGroup
	for i, one := range m.all {
		work.Go(func() {
			c, err := m.reach(ctx, one)
			mu.Lock()
			defer mu.Unlock()
			if failed[i] = err; err == nil {
				ready[one] = c
			}
		})
	}
	work.Wait()
	if ok, why := m.enough(); !ok {
		closeAll(ready)
		err := errors.Join(failed...)
		return nil, &path.Error{What: "bridge " + m.bridge.String(), Why: "it cannot be reached: " + why, Hint: cmp.Or(errhint.Of(err),
			"check that the bridge runs, and that the network lets TCP to that port pass")}
	}
	return ready, nil
}

func closeAll(ready map[*member]proved) {
	for _, c := range ready {
		c.conn.Close()
	}
}

// begin opens the link on the path that the schedule draws. A path whose connection breaks before the answer is not drawn again.
func (s *Session) begin(ctx context.Context, ready map[*member]proved) error {
	var last error
	for {
		one := s.members.draw(time.Now())
		if one == nil {
			closeAll(ready)
			return s.noAnswer(last)
		}
		first, there := ready[one.member]
		delete(ready, one.member)
		if !there {
			var err error
			if first.conn, err = s.members.dial(ctx, one); err != nil {
				continue
			}
			first.way = one
		}
		err := s.attempt(ctx, first.way, first.conn)
		if err == nil {
			return nil
		}
		last = err
		if ctx.Err() != nil || s.refused(err) {
			closeAll(ready)
			return s.noAnswer(err)
		}
	}
}

// attempt is [Session.hello], with a share of the time for each path and cover if only silence tells that one is dead.
func (s *Session) attempt(ctx context.Context, one *way, c net.Conn) error {
	if !s.o.Datagrams && len(s.o.Covers) == 1 {
		return s.hello(ctx, one, c)
	}
	ctx, cancel := context.WithTimeout(ctx, answerPatience/time.Duration(len(s.members.all)*len(s.o.Covers)))
	defer cancel()
	err := s.hello(ctx, one, c)
	if ctx.Err() != nil {
		s.members.silent(one)
	}
	return err
}

// refused reports whether the bridge itself said no: another path changes nothing then.
func (s *Session) refused(err error) bool {
	reset, ok := errors.AsType[*link.ResetError](err)
	return ok && reset.Remote
}

// hello begins a link on one connection, and waits for the answer.
func (s *Session) hello(ctx context.Context, one *way, c net.Conn) error {
	shape, parameters, err := one.cover.Client()
	if err != nil {
		c.Close()
		return err
	}
	l, on, err := link.Initiate(s.o.Link, handshake.Hello{Mode: s.o.mode, Token: s.o.Line.Token, Cover: parameters}, s.o.Datagrams)
	if err != nil {
		c.Close()
		return err
	}
	s.Link = l
	on.Via(one.member.Name)
	first := &carrier{way: one, conn: c, on: on, shape: shape, opened: make(chan struct{})}
	done := s.start(first)
	select {
	case <-first.opened:
		return nil
	case <-l.Done():
		err = l.Err()
	case <-done: // the bridge may have refused before
		err = cmp.Or(l.Err(), errClosed)
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	l.Close()
	first.cut()
	<-done
	return err
}

// errClosed says that a connection ended before the bridge had answered.
var errClosed = errors.New("the connection ended without an answer")

// noAnswer explains why no link opened. A bridge answers nobody who does not know its key, or whose clock is wrong.
func (s *Session) noAnswer(err error) error {
	if err != nil && s.refused(err) {
		return &path.Error{What: "bridge " + s.o.Line.Address.String(), Err: err, Hint: errhint.Of(err)}
	}
	e := &path.Error{What: "bridge " + s.o.Line.Address.String(), Why: "it does not answer",
		Hint: fmt.Sprintf("the bridge line may be wrong or too old, or the clock of this machine, which says %s: a bridge answers nobody else; or something on the way blocks it",
			time.Now().UTC().Format("2006-01-02 15:04:05 UTC"))}
	if errors.Is(err, errClosed) {
		e.Why = "it ends the connection without an answer"
	}
	if why := told(err); why != nil {
		e.Err, e.Hint = why, why.Hint
	}
	return e
}

// told returns what a cover says of its connection, such as that another server answers there, or nil.
func told(err error) *path.Error {
	if end, ok := errors.AsType[*path.Error](err); ok { // of the link
		if of, ok := errors.AsType[*path.Error](end.Err); ok {
			return of
		}
	}
	return nil
}
