package mptcp

import (
	"context"
	"crypto/tls"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"heddle/identity"
	"heddle/internal/connlimit"
	"heddle/path"
	"heddle/stripe"
	"heddle/stripe/door"
)

// introduction limits the time until a connection is admitted.
const introduction = 15 * time.Second

// Listener accepts MPTCP connections.
type Listener struct {
	*door.Door[*Conn]
	o      stripe.ListenOptions
	config *tls.Config
	places *connlimit.Limiter[identity.Key] // sessions per key, from their introduction on
	lines  connlimit.Lines                  // of refused connections

	mu   sync.Mutex
	live map[*Conn]bool
}

// NewListener takes over l, which needs a [net.ListenConfig] with SetMultipathTCP(true). The client's kernel adds subflows,
// so no privilege is needed, but this kernel's limit must permit them. It ignores Memory, Window and MinRate.
func NewListener(l net.Listener, o stripe.ListenOptions) (*Listener, error) {
	if err := supported(); err != nil {
		return nil, err
	}
	o = o.Complete()
	config, err := o.Identity.Server(o.Accept, Protocol)
	if err != nil {
		return nil, &path.Error{What: "mptcp", Why: err.Error()}
	}
	config.KeyLogWriter = o.KeyLog
	s := &Listener{Door: door.New[*Conn](l), o: o, config: config, live: map[*Conn]bool{},
		places: connlimit.NewLimiter[identity.Key]((o.MaxSessions+1)/2, o.MaxSessions)}
	s.Serve(s.meet)
	return s, nil
}

func (l *Listener) meet(ctx context.Context, p *connlimit.Place, _ func()) {
	ctx, cancel := context.WithTimeout(ctx, introduction)
	defer cancel()
	c, err := l.admit(ctx, p)
	if err != nil {
		if l.lines.Take(time.Now()) {
			l.o.Log.Warn("mptcp connection refused", "from", p.RemoteAddr(), "err", err)
		}
		p.Close()
		return
	}
	p.Leave() // it is a session, even if nobody accepts it yet
	l.keep(c)
	l.Deliver(c, c.Done())
}

func (l *Listener) keep(c *Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.live[c] = true
	go func() {
		<-c.Done()
		l.places.Release(c.peer)
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.live, c)
	}()
}

// Sessions returns the current connections.
func (l *Listener) Sessions() []*Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.SortedFunc(maps.Keys(l.live), func(a, b *Conn) int { return a.since.Compare(b.since) })
}

// admit makes a connection from a peer's first subflow, which then holds a place.
func (l *Listener) admit(ctx context.Context, p *connlimit.Place) (c *Conn, err error) {
	tcp := p.NetConn().(*net.TCPConn)
	if multi, err := tcp.MultipathTCP(); err != nil || !multi {
		return nil, &path.Error{What: "mptcp", Why: "it speaks plain TCP", Err: err}
	}
	stop := context.AfterFunc(ctx, func() { _ = tcp.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	_ = tcp.SetKeepAliveConfig(keepAlive(l.o.Patience))
	secure := tls.Server(p, l.config)
	if err := secure.HandshakeContext(ctx); err != nil {
		return nil, err
	}
	peer, err := identity.PeerKey(secure.ConnectionState())
	if err != nil {
		return nil, err
	}
	p.Proved()
	h, err := readHello(secure)
	if err != nil {
		return nil, err
	}
	if err := l.permits(peer, h); err != nil {
		_, _ = secure.Write(encodeRefusal(err.Error()))
		return nil, err
	}
	defer func() {
		if err != nil {
			l.places.Release(peer)
		}
	}()
	c, err = newConn(tcp, secure, h.min, h.degrade, l.o.Patience, l.o.Log)
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

// permits returns why a peer may not have a connection. If it returns nil, the peer has taken a place.
func (l *Listener) permits(peer identity.Key, h hello) error {
	if most, err := limit(); err == nil && h.paths > most+1 {
		return fmt.Errorf("its kernel lets a connection have %d paths, not %d: `ip mptcp limits set subflow %d` there changes that", most+1, h.paths, h.paths-1)
	}
	if l.o.Service != nil {
		if err := l.o.Service(peer, h.service); err != nil {
			return err
		}
	}
	if !l.places.Acquire(peer) {
		return fmt.Errorf("it takes at most %d connections, of which one key has half", l.o.MaxSessions)
	}
	return nil
}
