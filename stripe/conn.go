package stripe

import (
	"cmp"
	"context"
	"io"
	"net"
	"os"
	"slices"
	"time"

	"heddle/identity"
	"heddle/internal/segment"
	"heddle/path"
)

// Wait blocks until the peer admitted the required members, or returns the reason why it did not.
func (c *Conn) Wait(ctx context.Context) error {
	if !c.client {
		return nil
	}
	select {
	case <-c.admitted:
		return nil
	case <-c.over:
		c.mu.Lock()
		defer c.mu.Unlock()
		return cmp.Or(c.failure, net.ErrClosed)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Read reads the stream in order. It returns [io.EOF] only if the peer ended its stream and all of it arrived.
func (c *Conn) Read(p []byte) (int, error) {
	c.reading.Lock()
	defer c.reading.Unlock()
	for {
		n, err := c.readSome(p)
		if n > 0 || err != nil || len(p) == 0 {
			return n, err
		}
		if err := c.await(c.in.readable, &c.readBy); err != nil {
			return 0, err
		}
	}
}

func (c *Conn) await(woken <-chan struct{}, by *path.Deadline) error {
	select {
	case <-woken:
	case <-c.over:
	case <-by.Passed():
		return os.ErrDeadlineExceeded
	}
	return nil
}

func (c *Conn) readSome(p []byte) (int, error) {
	if isClosed(c.readBy.Passed()) {
		return 0, os.ErrDeadlineExceeded
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if c.torn(now) {
		return 0, nil
	}
	if n := c.in.Read(p, now); n > 0 {
		c.ackAll()
		return n, nil
	}
	return 0, c.readError()
}

// readError returns why nothing more can be read when nothing is ready, or nil if data may still come. c.mu is held.
func (c *Conn) readError() error {
	switch {
	case c.in.Discards():
		return net.ErrClosed
	case c.in.Ended():
		return io.EOF
	case c.finished:
		return cmp.Or(c.failure, net.ErrClosed)
	}
	return nil
}

// Write returns once all of p is accepted for sending. It blocks while too few paths are up.
func (c *Conn) Write(p []byte) (int, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	n := 0
	for {
		m, err := c.writeSome(p[n:])
		n += m
		if err != nil || n == len(p) {
			return n, err
		}
		if m > 0 {
			continue
		}
		if err := c.await(c.out.writable, &c.writeBy); err != nil {
			return n, err
		}
	}
}

func (c *Conn) writeSome(p []byte) (int, error) {
	if isClosed(c.writeBy.Passed()) {
		return 0, os.ErrDeadlineExceeded
	}
	c.mu.Lock()
	s := &c.out
	if err := c.writeError(); err != nil {
		c.mu.Unlock()
		return 0, err
	}
	n, at := min(len(p), s.Free()), s.Written()
	c.mu.Unlock()
	s.Put(at, p[:n]) // c.writing is held
	c.mu.Lock()
	s.Commit(n)
	c.mu.Unlock()
	if n > 0 {
		wake(s.wake)
	}
	return n, nil
}

func (c *Conn) writeError() error {
	switch {
	case c.out.Closed():
		return net.ErrClosed
	case c.peerClosed:
		return &path.Error{What: c.errorSubject(), Why: "the other side wants nothing more", Err: net.ErrClosed}
	case c.finished:
		return cmp.Or(c.failure, net.ErrClosed)
	}
	return nil
}

// CloseWrite ends this side's stream. The peer may continue its own.
func (c *Conn) CloseWrite() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.out.Closed() {
		return nil
	}
	err := c.writeError()
	c.out.Close()
	wake(c.out.wake)
	wake(c.out.writable)
	return err
}

// Close waits up to Patience until the peer has confirmed everything, and then ends the session; it fails if the peer did
// not. It discards what the peer still sends.
func (c *Conn) Close() error {
	c.closing.Do(func() { c.closed = c.part() })
	return c.closed
}

func (c *Conn) part() error {
	c.mu.Lock()
	c.in.Discard(time.Now())
	c.ackAll()
	c.out.Close()
	wake(c.out.wake)
	wake(c.in.readable)
	wake(c.out.writable)
	c.mu.Unlock()
	c.awaitProof()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.finished {
		switch {
		case !c.out.Proved():
			c.fail(&path.Error{What: c.errorSubject(), Why: "the other side did not confirm all in time: " + cmp.Or(c.missing(), "all paths are up")})
		case c.in.Ended():
			c.finish(nil, segment.Close{Code: segment.Complete})
		default:
			c.finish(nil, segment.Close{Code: segment.Closed})
		}
	}
	c.mu.Unlock()
	select {
	case <-c.gone:
	case <-time.After(2 * lastWords): // do not wait for a path that hangs
	}
	c.mu.Lock()
	if c.out.Proved() || c.peerClosed && c.out.Drained() { // the peer closed too, so it needs no confirmed end
		return nil
	}
	return cmp.Or[error](c.failure, &path.Error{What: c.errorSubject(), Why: "the other side ended it before it had everything"})
}

func (c *Conn) awaitProof() {
	timer := time.NewTimer(c.patience)
	defer timer.Stop()
	for {
		c.mu.Lock()
		done := c.out.Proved() && !c.trailing()
		c.mu.Unlock()
		if done {
			return
		}
		select {
		case <-c.out.progress:
		case <-c.over:
			return
		case <-timer.C:
			return
		}
	}
}

// trailing reports whether shares that the peer no longer needs are still queued and must be sent.
func (c *Conn) trailing() bool {
	return !c.scheme.None() && c.waits() &&
		slices.ContainsFunc(c.members, func(m *member) bool { return m.link != nil && m.out.Waiting()+m.out.Busy() > 0 })
}

// Abort ends the session at once and tells the peer why if a path still reaches it.
func (c *Conn) Abort(why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.finish(&path.Error{What: c.errorSubject(), Why: why}, segment.Close{Code: segment.Failed, Why: why})
}

// Peer returns the key that the peer proved on every member.
func (c *Conn) Peer() identity.Key { return c.peer }

// Service returns the service that the dialling side asked for.
func (c *Conn) Service() string { return c.service }

// LocalAddr returns the local address of one member.
func (c *Conn) LocalAddr() net.Addr {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.local
}

// RemoteAddr returns the address that was dialled, or the remote address of one member.
func (c *Conn) RemoteAddr() net.Addr {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.remote
}

// SetDeadline sets the deadlines for reading and for writing.
func (c *Conn) SetDeadline(t time.Time) error {
	c.readBy.Set(t)
	c.writeBy.Set(t)
	return nil
}

// SetReadDeadline sets the deadline of Read.
func (c *Conn) SetReadDeadline(t time.Time) error {
	c.readBy.Set(t)
	return nil
}

// SetWriteDeadline sets the deadline of Write.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	c.writeBy.Set(t)
	return nil
}
