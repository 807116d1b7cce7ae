package mptcp

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"heddle/identity"
	"heddle/internal/netutil"
	"heddle/internal/unsent"
	"heddle/path"
	"heddle/path/group"
)

const (
	lookEvery  = 50 * time.Millisecond
	piece      = 64 << 10  // bytes of Write between two checks that enough subflows are up
	mostUnsent = 256 << 10 // bytes in the kernel, which it may send over any remaining subflow
)

// Conn is one connection. Read and Write may be called concurrently.
type Conn struct {
	tls     *tls.Conn
	tcp     *net.TCPConn
	socket  socket
	peer    identity.Key
	service string
	since   time.Time
	token   uint32

	patience  time.Duration
	listening bool
	log       *slog.Logger

	deadline       path.Deadline
	sent, received atomic.Uint64 // bytes of the stream
	// ctx ends with the connection. Its cause is the failure, or net.ErrClosed after Close.
	ctx context.Context
	end context.CancelCauseFunc

	mu      sync.Mutex
	members []*member
	quorum  group.Quorum  // of subflows that are up
	changed chan struct{} // closed and replaced when there are enough or too few
	lacking time.Time     // when there came to be too few
	ended   bool          // this side ended its stream
}

var _ net.Conn = (*Conn)(nil)

func newConn(tcp *net.TCPConn, secure *tls.Conn, min int, degrade bool, patience time.Duration, log *slog.Logger) (*Conn, error) {
	raw, err := tcp.SyscallConn()
	if err != nil {
		return nil, err
	}
	c := &Conn{tls: secure, tcp: tcp, socket: socket{raw}, since: time.Now(), quorum: group.Quorum{Min: min, Degrade: degrade, Complete: true}, patience: patience, log: log,
		changed: make(chan struct{}), lacking: time.Now()}
	c.ctx, c.end = context.WithCancelCause(context.Background())
	i, err := c.socket.info()
	if err != nil || i.fallback {
		return nil, &path.Error{What: "mptcp", Why: "the connection to " + tcp.RemoteAddr().String() + " fell back to plain TCP", Err: err,
			Hint: "somebody on the way takes MPTCP's options out, or the node ends TCP itself: it must be in nat mode"}
	}
	c.token = i.token
	// Since Linux 6.10. Without it, more data moves to the remaining subflows when one fails.
	_ = c.socket.do(func(fd int) error { return unsent.Set(uintptr(fd), mostUnsent) })
	return c, nil
}

// look updates the members from the kernel. With dialMissing it also adds missing subflows.
func (c *Conn) look(dialMissing bool) (up int, err error) {
	now, err := c.socket.subflows()
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil { // such as after a fallback to plain TCP
		c.decide(0)
		return 0, err
	}
	var changed []*member
	c.members, changed = observe(c.members, now, c.listening)
	for _, w := range changed {
		c.log.Info("mptcp subflow", "path", w.Name, "to", w.to, "state", w.State, "why", w.Why)
	}
	if dialMissing && !c.listening {
		for _, m := range c.members {
			err = cmp.Or(m.dial(c.token, time.Now()), err)
		}
	}
	up = healthy(c.members)
	c.decide(up)
	return up, err
}

// decide permits or blocks writes. c.mu is held.
func (c *Conn) decide(up int) {
	if c.quorum.Set(up) {
		c.lacking = time.Now()
		close(c.changed)
		c.changed = make(chan struct{})
	}
}

func (c *Conn) await(ctx context.Context, need int) error {
	var last error
	for wait := time.Millisecond; ; wait = min(2*wait, 20*time.Millisecond) {
		up, err := c.look(true)
		if up >= need {
			return nil
		}
		if err != nil && !errors.Is(err, unix.ENOTCONN) { // the kernel is not ready yet
			last = err
		}
		if !errors.Is(last, unix.EPERM) && netutil.Sleep(ctx, wait) == nil {
			continue
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		return notUp(c.members, need, last)
	}
}

// watch maintains the subflows until the connection ends.
func (c *Conn) watch() {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-tick.C:
		}
		if c.over() {
			return
		}
		_, err := c.look(true)
		c.mu.Lock()
		lost := !c.quorum.Enough() && time.Since(c.lacking) >= c.patience
		var why error
		if lost {
			why = notUp(c.members, c.quorum.Need(), err)
		}
		c.mu.Unlock()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case lost && c.socket.ended(): // received data can still be read
			c.stop(why)
			return
		case lost:
			c.stop(why)
			netutil.Reset(c.tcp)
			return
		}
	}
}

// over reports whether both sides have ended their stream. The kernel then removes the subflows.
func (c *Conn) over() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended && c.socket.ended()
}

// stop ends the connection with a reason, with which later writes fail.
func (c *Conn) stop(why error) {
	c.log.Warn("mptcp connection ends", "peer", c.peer.Short(), "err", why)
	c.end(why)
}

func (c *Conn) failure() error {
	if why := context.Cause(c.ctx); why != net.ErrClosed {
		return why
	}
	return nil
}

func (c *Conn) pass() error {
	late := c.deadline.Passed()
	for {
		c.mu.Lock()
		open, changed := c.quorum.Enough(), c.changed
		c.mu.Unlock()
		switch {
		case c.ctx.Err() != nil:
			return context.Cause(c.ctx)
		case open:
			return nil
		}
		select {
		case <-changed:
		case <-c.ctx.Done():
		case <-late:
			return os.ErrDeadlineExceeded
		}
	}
}

// Write sends p. It blocks while too few subflows are up. If that lasts longer than Patience, the connection fails.
func (c *Conn) Write(p []byte) (n int, err error) {
	for {
		if err := c.pass(); err != nil {
			return n, err
		}
		one, err := c.tls.Write(p[n:min(len(p), n+piece)])
		c.sent.Add(uint64(one))
		if n += one; err != nil {
			return n, c.broken(err)
		}
		if n == len(p) {
			return n, nil
		}
	}
}

// Read reads the stream. It returns [io.EOF] only if the peer ended its stream.
func (c *Conn) Read(p []byte) (int, error) {
	n, err := c.tls.Read(p)
	c.received.Add(uint64(n))
	if err != nil && !errors.Is(err, io.EOF) {
		err = c.broken(err)
	}
	return n, err
}

// broken returns the reason why the connection failed if it is known, or err.
func (c *Conn) broken(err error) error {
	failure := c.failure()
	switch {
	case failure != nil:
		return failure
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, net.ErrClosed):
		return err
	}
	return &path.Error{What: "mptcp connection", Why: "broke off", Err: err,
		Hint: "a side that lacks a required path ends the connection: look at its log"}
}

// CloseWrite ends this side's stream; the peer may continue its own. It first waits until the peer's kernel has acknowledged
// all data, and fails if that takes longer than Patience.
func (c *Conn) CloseWrite() error {
	if err := c.pass(); err != nil {
		return err
	}
	if err := c.tls.CloseWrite(); err != nil {
		return c.broken(err)
	}
	// Once both sides have ended, the kernel forgets the subflows and their counters.
	if err := c.drain(); err != nil {
		return err
	}
	_, _ = c.look(false)
	c.mu.Lock()
	c.ended = true
	c.mu.Unlock()
	return c.tcp.CloseWrite()
}

// Close calls [Conn.CloseWrite] and closes the connection. If CloseWrite fails, unsent data is dropped.
func (c *Conn) Close() error {
	if c.ctx.Err() != nil {
		netutil.Reset(c.tcp)
		return c.failure()
	}
	c.mu.Lock()
	ended := c.ended
	c.mu.Unlock()
	var err error
	if !ended {
		err = c.CloseWrite()
	}
	c.end(net.ErrClosed)
	if err != nil {
		netutil.Reset(c.tcp)
		return err
	}
	return c.tcp.Close()
}

// Abort ends the connection at once. The peer learns that the stream is incomplete, but not why.
func (c *Conn) Abort(why string) {
	c.stop(&path.Error{What: "mptcp connection", Why: why})
	netutil.Reset(c.tcp)
}

func (c *Conn) drain() error {
	ctx, cancel := context.WithTimeoutCause(c.ctx, c.patience,
		&path.Error{What: "mptcp connection", Why: fmt.Sprintf("the peer did not take all within %v", c.patience)})
	defer cancel()
	for wait := time.Millisecond; ; wait = min(2*wait, 20*time.Millisecond) {
		if i, err := c.socket.info(); err != nil || i.unacknowledged == 0 {
			return err
		}
		if netutil.Sleep(ctx, wait) != nil {
			return context.Cause(ctx)
		}
	}
}

// Done returns a channel that is closed once the connection has ended on this side.
func (c *Conn) Done() <-chan struct{} { return c.ctx.Done() }

// Peer returns the key that the peer proved.
func (c *Conn) Peer() identity.Key { return c.peer }

// Service returns the service that the dialling side asked for.
func (c *Conn) Service() string { return c.service }

// LocalAddr returns the local address of the first subflow.
func (c *Conn) LocalAddr() net.Addr { return c.tcp.LocalAddr() }

// RemoteAddr returns the remote address of the first subflow.
func (c *Conn) RemoteAddr() net.Addr { return c.tcp.RemoteAddr() }

// SetDeadline sets the deadlines for reading and for writing.
func (c *Conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// SetReadDeadline sets the deadline of Read.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.tls.SetReadDeadline(t) }

// SetWriteDeadline sets the deadline of Write. After a timeout within a TLS record, all later writes fail (crypto/tls).
func (c *Conn) SetWriteDeadline(t time.Time) error {
	c.deadline.Set(t)
	return c.tls.SetWriteDeadline(t)
}
