// Package pacing helps the congestion control BBR with programs that often have nothing to send. Linux has its first version, which
// assumes that bytes mostly wait to be sent.
//
// It leaves its start-up, in which it sends 2.9 times as fast as packets arrive, only after three round trips in which bytes waited. A
// connection whose program writes no faster than the network carries never has such a round trip. Each burst then overflows the queue of the
// network. BBR's third version leaves the start-up when a round trip loses 2 % (section 5.3.1.3 of draft-ietf-ccwg-bbr), and so does
// [Conn]: it bounds the rate.
//
// And each ten seconds it looks for the shortest round trip, by sending only four packets for 0.2 s. The round trip of a message after a
// pause would do, but BBR ignores that of a single packet below a full segment: its acknowledgement may be late. So [Conn.Least] tells when to
// send more.
package pacing

import (
	"errors"
	"net"
	"sync"
	"syscall"
	"time"

	"heddle/internal/unsent"
)

const (
	// leastPause is between two looks at the least, for networks whose round trip is shorter.
	leastPause = 10 * time.Millisecond
	// searches is how often BBR looks for the shortest round trip.
	searches = 10 * time.Second
)

// Conn is a connection over TCP. If its congestion control is not BBR, it is as the one below.
type Conn struct {
	net.Conn
	raw syscall.RawConn // nil without BBR
	ask func(fd uintptr) (sample, error)

	mu      sync.Mutex
	next    time.Time // when to look
	bound   bound
	renewed time.Time // when BBR learnt the round trip without a search
}

// New returns a Conn over c.
func New(c net.Conn) *Conn {
	out := &Conn{Conn: c, ask: ask, renewed: time.Now()}
	raw := unsent.Socket(c)
	if raw == nil {
		return out
	}
	_ = raw.Control(func(fd uintptr) {
		if isBBR(fd) {
			out.raw = raw
		}
	})
	return out
}

// NetConn returns the connection below.
func (c *Conn) NetConn() net.Conn { return c.Conn }

// CloseWrite ends the direction that this end sends, if the connection below can.
func (c *Conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// Write writes, and looks at what happened to what was written before.
func (c *Conn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if c.raw != nil && c.mu.TryLock() {
		c.look(time.Now())
		c.mu.Unlock()
	}
	return n, err
}

// look sets the bound, once in a round trip.
func (c *Conn) look(now time.Time) {
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
			limit(fd, int(c.bound.rate))
		}
	})
}

// Least returns how many bytes the next write should have at the least, so that BBR does not soon search. It is 0 if any number will do.
func (c *Conn) Least() (bytes int) {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.raw == nil || now.Sub(c.renewed) < searches {
		return 0
	}
	_ = c.raw.Control(func(fd uintptr) {
		if s, err := c.ask(fd); err == nil && s.inFlight == 0 {
			c.renewed, bytes = now, int(s.segment)
		}
	})
	return bytes
}
