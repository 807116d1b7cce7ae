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

// Wait blocks until the peer has let in as many members as are required, or says why not.
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

// Read gives what arrived, in order. It returns [io.EOF] only once the peer ended its stream and all of it arrived; a
// session that broke off gives another error.
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

// await waits for a wake-up or the end of the session, until a deadline.
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
	if n := c.in.Read(p, time.Now()); n > 0 {
		c.ackAll()
		return n, nil
	}
	return 0, c.readError()
}

// readError says why nothing more can be read once nothing is ready, or nil where it may come. c.mu is held.
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

// Write takes p for sending, and returns once all of it is taken. It blocks while too few paths are up.
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
	s.Put(at, p[:n]) // nobody else writes
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

// CloseWrite ends this side's stream; the peer may go on with its own.
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

// Close ends the session. It first waits until the peer has all that was written, as long as Patience; its error says that
// this was not proved. What the peer still sends is thrown away.
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
	case <-time.After(2 * lastWords): // a path that does not let go is no reason to wait
	}
	c.mu.Lock()
	if c.out.Proved() || c.peerClosed && c.out.Drained() { // it closed too, and needs no end
		return nil
	}
	return cmp.Or[error](c.failure, &path.Error{What: c.errorSubject(), Why: "the other side ended it before it had everything"})
}

// awaitProof waits until the other side has everything, the session is over, or patience ends.
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

// trailing reports whether shares that the stream was restored without still wait for a path, and should go out.
func (c *Conn) trailing() bool {
	return !c.scheme.None() && c.waits() &&
		slices.ContainsFunc(c.members, func(m *member) bool { return m.link != nil && m.out.Waiting()+m.out.Busy() > 0 })
}

// Abort ends the session at once and tells the peer why, as far as it is still reached.
func (c *Conn) Abort(why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.finish(&path.Error{What: c.errorSubject(), Why: why}, segment.Close{Code: segment.Failed, Why: why})
}

// Peer is the key that the other side proved on every member.
func (c *Conn) Peer() identity.Key { return c.peer }

// Service is what the session was asked for.
func (c *Conn) Service() string { return c.service }

// LocalAddr is the address of one of the members at this side.
func (c *Conn) LocalAddr() net.Addr {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.local
}

// RemoteAddr is what the session was dialled to, or the address that one of its members came from.
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

// SetReadDeadline bounds how long Read waits.
func (c *Conn) SetReadDeadline(t time.Time) error {
	c.readBy.Set(t)
	return nil
}

// SetWriteDeadline bounds how long Write waits.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	c.writeBy.Set(t)
	return nil
}
