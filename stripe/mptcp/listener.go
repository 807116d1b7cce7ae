package mptcp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"heddle/identity"
	"heddle/internal/connlimit"
	"heddle/internal/netutil"
	"heddle/path"
)

// ListenOptions configure a listener.
type ListenOptions struct {
	Identity identity.Identity
	// Accept decides whether the holder of a key may connect. nil refuses everybody.
	Accept func(identity.Key) error
	// Service decides whether a peer may have a service. nil permits all. The peer receives the error.
	Service func(peer identity.Key, service string) error
	// MaxSessions limits the number of connections at a time. 0 means 256.
	MaxSessions int
	// Patience is as in [Options].
	Patience time.Duration
	Log      *slog.Logger
	// KeyLog is as in [Options].
	KeyLog io.Writer
}

const (
	// The limits of connections that are not admitted yet, in all and from one source.
	maxStrangers  = 256
	strangersEach = 64
	// introduction limits how long they may take to be admitted.
	introduction = 15 * time.Second
)

// Listener accepts connections of several subflows.
type Listener struct {
	listener  net.Listener
	o         ListenOptions
	config    *tls.Config
	strangers *connlimit.Limiter[netip.Addr]
	ready     chan *Conn
	ctx       context.Context
	cancel    context.CancelFunc
	wait      sync.WaitGroup

	mu   sync.Mutex
	err  error // why the listener ended
	live map[*Conn]bool
}

// NewListener serves the connections that arrive at l, and takes l over. Make l by a [net.ListenConfig] with
// SetMultipathTCP(true). The client's kernel adds the subflows, so the listening side needs no privilege; its kernel's limit of
// subflows must permit them.
func NewListener(l net.Listener, o ListenOptions) (*Listener, error) {
	if err := supported(); err != nil {
		return nil, err
	}
	if o.Patience == 0 {
		o.Patience = DefaultPatience
	}
	if o.MaxSessions == 0 {
		o.MaxSessions = 256
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	accept := o.Accept
	if accept == nil {
		accept = func(identity.Key) error { return errors.New("nobody is let in") }
	}
	config, err := o.Identity.Server(accept, Protocol)
	if err != nil {
		return nil, &path.Error{What: "mptcp", Why: err.Error()}
	}
	config.KeyLogWriter = o.KeyLog
	s := &Listener{listener: l, o: o, config: config, strangers: connlimit.NewLimiter[netip.Addr](strangersEach, maxStrangers), ready: make(chan *Conn), live: map[*Conn]bool{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.wait.Go(s.run)
	return s, nil
}

func (l *Listener) run() {
	defer l.cancel()
	err := netutil.Serve(l.ctx, l.listener, func(c net.Conn) {
		tcp := c.(*net.TCPConn)
		from := connlimit.SourceOf(tcp.RemoteAddr())
		if !l.strangers.Acquire(from) {
			abort(tcp)
			return
		}
		l.wait.Go(func() {
			defer l.strangers.Release(from)
			l.meet(tcp)
		})
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = err
}

// meet admits one connection, or closes it.
func (l *Listener) meet(tcp *net.TCPConn) {
	ctx, cancel := context.WithTimeout(l.ctx, introduction)
	defer cancel()
	c, err := l.admit(ctx, tcp)
	if err != nil {
		l.o.Log.Warn("mptcp connection refused", "from", tcp.RemoteAddr(), "err", err)
		_ = tcp.Close()
		return
	}
	l.keep(c)
	select {
	case l.ready <- c:
	case <-l.ctx.Done():
		c.Abort("the listener ends")
	}
}

// keep lists a connection until it ends.
func (l *Listener) keep(c *Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.live[c] = true
	go func() {
		<-c.Done()
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.live, c)
	}()
}

// Sessions returns the connections at this moment, for their status.
func (l *Listener) Sessions() []*Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.SortedFunc(maps.Keys(l.live), func(a, b *Conn) int { return a.since.Compare(b.since) })
}

func (l *Listener) admit(ctx context.Context, tcp *net.TCPConn) (*Conn, error) {
	if multi, err := tcp.MultipathTCP(); err != nil || !multi {
		return nil, &path.Error{What: "mptcp", Why: "it speaks plain TCP", Err: err}
	}
	stop := context.AfterFunc(ctx, func() { _ = tcp.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	_ = tcp.SetKeepAliveConfig(keepAlive(l.o.Patience))
	secure := tls.Server(tcp, l.config)
	if err := secure.HandshakeContext(ctx); err != nil {
		return nil, err
	}
	peer, err := identity.PeerKey(secure.ConnectionState())
	if err != nil {
		return nil, err
	}
	h, err := readHello(secure)
	if err != nil {
		return nil, err
	}
	if err := l.permits(peer, h); err != nil {
		_, _ = secure.Write(encodeRefusal(err.Error()))
		return nil, err
	}
	c, err := newConn(tcp, secure, h.min, h.degrade, l.o.Patience, l.o.Log)
	if err != nil {
		return nil, err
	}
	c.peer, c.service, c.listening = peer, h.service, true
	if _, err := secure.Write([]byte{answerWelcome}); err != nil {
		return nil, err
	}
	if err := c.await(ctx, h.min); err != nil {
		return nil, err
	}
	if !stop() {
		return nil, context.Cause(ctx)
	}
	if err := tcp.SetDeadline(time.Time{}); err != nil {
		return nil, err
	}
	go c.watch()
	return c, nil
}

// permits returns why a peer may not have a connection, or nil.
func (l *Listener) permits(peer identity.Key, h hello) error {
	if most, err := limit(); err == nil && h.paths > most+1 {
		return fmt.Errorf("its kernel lets a connection have %d paths, not %d: `ip mptcp limits set subflow %d` there changes that", most+1, h.paths, h.paths-1)
	}
	if len(l.Sessions()) >= l.o.MaxSessions {
		return fmt.Errorf("it has %d connections, and takes no more", l.o.MaxSessions)
	}
	if l.o.Service != nil {
		return l.o.Service(peer, h.service)
	}
	return nil
}

// Accept returns the next connection whose required subflows are all up.
func (l *Listener) Accept() (*Conn, error) {
	select {
	case c := <-l.ready:
		return c, nil
	case <-l.ctx.Done():
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.err != nil {
			return nil, l.err
		}
		return nil, net.ErrClosed
	}
}

// Addr returns the address of the listener.
func (l *Listener) Addr() net.Addr { return l.listener.Addr() }

// Close stops listening. Accepted connections stay open.
func (l *Listener) Close() error {
	err := l.listener.Close()
	l.cancel()
	l.wait.Wait()
	return err
}
