package link

import (
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// deadline is one of a net.Conn.
type deadline struct {
	at    time.Time
	timer *time.Timer
}

func (d *deadline) passed() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }

// set sets a deadline. wake runs when it passes.
func (d *deadline) set(at time.Time, wake func()) {
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	if d.at = at; !at.IsZero() {
		d.timer = time.AfterFunc(time.Until(at), wake)
	}
}

// Read reads from the stream of the other side.
func (l *Link) Read(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		switch {
		case l.closed:
			return 0, net.ErrClosed
		case l.readBy.passed():
			return 0, os.ErrDeadlineExceeded
		case len(p) == 0:
			return 0, nil
		}
		now := time.Now()
		if n := l.in.Read(p, now); n > 0 {
			if l.in.AckDue() {
				l.ack.due = true
				l.kick(now)
			}
			return n, nil
		}
		switch {
		case l.in.Ended():
			return 0, io.EOF
		case l.over:
			return 0, l.err
		}
		l.readable.Wait()
	}
}

// Write writes to the stream. It returns once all of p waits to be sent.
func (l *Link) Write(p []byte) (n int, err error) {
	l.writing.Lock()
	defer l.writing.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		switch {
		case l.closed || l.out.Closed():
			return n, net.ErrClosed
		case l.over && l.err != nil:
			return n, l.err
		case l.over:
			return n, io.ErrClosedPipe
		case l.writeBy.passed():
			return n, os.ErrDeadlineExceeded
		}
		now := time.Now()
		l.owing(now)
		if m := l.out.Write(p[n:]); m > 0 {
			n += m
			l.wrote(now)
			l.kick(now)
		}
		if n == len(p) {
			return n, nil
		}
		l.writable.Wait()
	}
}

// wrote notes that there is something to send. l.mu is held.
func (l *Link) wrote(now time.Time) {
	if l.out.Blocked() && l.ping.IsZero() && !l.pingDue {
		l.ping = now.Add(minRTO << min(l.pings, 6))
		l.alarm(l.ping)
	}
}

// wakeWriter wakes a Write if there is room for more than a few bytes. l.mu is held.
func (l *Link) wakeWriter() {
	if l.out.Room(writeLeast) == writeLeast {
		l.writable.Signal()
	}
}

// CloseWrite ends the stream to the other side. Reading goes on.
func (l *Link) CloseWrite() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closeWrite()
	return nil
}

func (l *Link) closeWrite() {
	if l.over || l.out.Closed() {
		return
	}
	l.owing(time.Now())
	l.out.Close()
	l.writable.Broadcast()
	l.kick(time.Now())
}

// Close ends the stream to the other side, and drops what arrives from then on. The link still sends what was written, in
// the background, as long as there are connections. [Link.Done] tells when it was.
func (l *Link) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	l.closed = true
	l.readable.Broadcast()
	l.writable.Broadcast()
	l.readBy.set(time.Time{}, nil)
	l.writeBy.set(time.Time{}, nil)
	if l.over {
		return nil
	}
	now := time.Now()
	l.in.Discard(now)
	l.closeBy = now.Add(closeGrace)
	l.alarm(l.closeBy)
	if l.keys.send == nil && l.out.Written() == 0 { // nothing would be lost
		l.end(net.ErrClosed, silent)
		return nil
	}
	l.closeWrite()
	return nil
}

func (l *Link) SetDeadline(t time.Time) error {
	_ = l.SetReadDeadline(t)
	return l.SetWriteDeadline(t)
}

func (l *Link) SetReadDeadline(t time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.readBy.set(t, l.wake(&l.readable))
	l.readable.Broadcast()
	return nil
}

func (l *Link) SetWriteDeadline(t time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.writeBy.set(t, l.wake(&l.writable))
	l.writable.Broadcast()
	return nil
}

func (l *Link) LocalAddr() net.Addr { return addr(l.o.Local) }

func (l *Link) RemoteAddr() net.Addr { return addr(l.o.Remote) }

func addr(a net.Addr) net.Addr {
	if a == nil {
		return nowhere{}
	}
	return a
}

// nowhere is the address of a link whose maker gave none.
type nowhere struct{}

func (nowhere) Network() string { return "disguise" }

func (nowhere) String() string { return "disguised link" }

func (l *Link) wake(c *sync.Cond) func() {
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		c.Broadcast()
	}
}
