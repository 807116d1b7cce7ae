package pacing

import (
	"net"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"heddle/internal/unsent"
)

// conn is a connection whose writes set the bound.
type conn struct {
	net.Conn
	half  interface{ CloseWrite() error }
	raw   syscall.RawConn
	ask   func(fd uintptr) (sample, error)
	mu    sync.Mutex
	next  time.Time // of a look
	bound bound
}

// Conn returns a connection that bounds what it sends through c. It returns c itself if that is no TCP connection with BBR.
func Conn(c net.Conn) net.Conn {
	half, ok := c.(interface{ CloseWrite() error })
	raw := unsent.Socket(c)
	if !ok || raw == nil {
		return c
	}
	var name string
	_ = raw.Control(func(fd uintptr) { name, _ = unix.GetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION) })
	if !strings.HasPrefix(name, "bbr") {
		return c
	}
	return &conn{Conn: c, half: half, raw: raw, ask: ask}
}

// NetConn returns the connection that Conn got.
func (c *conn) NetConn() net.Conn { return c.Conn }

// CloseWrite ends the direction that this end sends.
func (c *conn) CloseWrite() error { return c.half.CloseWrite() }

// Write writes to c, and looks at what happened to what was written before.
func (c *conn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if c.mu.TryLock() {
		c.look(time.Now())
		c.mu.Unlock()
	}
	return n, err
}

// look takes a sample once in a round trip.
func (c *conn) look(now time.Time) {
	if now.Before(c.next) {
		return
	}
	_ = c.raw.Control(func(fd uintptr) {
		s, err := c.ask(fd)
		if err != nil {
			return
		}
		c.next = now.Add(max(s.rtt, leastPause))
		if c.bound.take(s) {
			_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MAX_PACING_RATE, int(c.bound.rate))
		}
	})
}

func ask(fd uintptr) (sample, error) {
	i, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return sample{}, err
	}
	return sample{rtt: time.Duration(i.Rtt) * time.Microsecond, delivered: i.Delivery_rate, sent: i.Data_segs_out, lost: i.Total_retrans}, nil
}
