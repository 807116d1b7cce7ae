package stripe

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"heddle/internal/segment"
	"heddle/internal/text"
)

const (
	lookEvery   = 250 * time.Millisecond
	pingEvery   = time.Second      // while data moves
	pingIdle    = 15 * time.Second // otherwise
	silentAfter = 6 * time.Second  // without any data after a ping; long round trips extend it
	paceOver    = 10 * time.Second // period of the MinRate check
	// One write takes about batchTime of what the path carries, within these limits.
	firstBatch = 64 << 10
	mostBatch  = 256 << 10
	batchTime  = 50 * time.Millisecond
)

// health is the state of the pings of one connection.
type health struct {
	heard   time.Time
	pingDue bool
	number  uint64    // of the last ping
	pinged  time.Time // when the open ping was sent; zero once answered
	last    time.Time // when the last ping was sent
	moved   uint64    // bytes counted then
	rtt     time.Duration
	least   time.Duration // the shortest so far
	guess   time.Duration // the handshake's, until the first answer
	verdict string        // why the connection was dropped
}

func (h *health) ping(now time.Time) uint64 {
	h.number++
	h.pinged, h.last = now, now
	return h.number
}

// ping answers a ping or handles an answer. c.mu is held.
func (m *member) ping(kind segment.Kind, body []byte) error {
	number, err := segment.ParsePing(body)
	if err != nil {
		return m.c.violated(m, "%v", err)
	}
	if kind == segment.KindPing {
		if len(m.pongs) < 4 {
			m.pongs = append(m.pongs, number)
		}
		wake(m.wake)
		return nil
	}
	if h := &m.health; number == h.number && !h.pinged.IsZero() {
		sample := time.Since(h.pinged)
		if h.pinged = (time.Time{}); h.rtt == 0 {
			h.rtt, h.least = sample, sample
		}
		h.least = min(h.least, sample)
		h.rtt += (sample - h.rtt) / 8
	}
	return nil
}

// pace measures how fast one connection takes data.
type pace struct {
	limit     int // bytes of one write, and of the queue if the schedule has a choice
	rate      float64
	since     time.Time // start of the period in which it always had data to send
	bytes     int       // taken since then
	last      time.Time // when it last took data
	confirmed time.Time // when the peer last confirmed some of it
}

// wrote notes that the kernel took bytes in a write of duration took.
func (p *pace) wrote(bytes int, took time.Duration) {
	p.bytes += bytes
	p.last = time.Now()
	if bytes < small || took <= 0 {
		return
	}
	rate := float64(bytes) / took.Seconds()
	if p.rate == 0 {
		p.rate = rate
	}
	p.rate += (rate - p.rate) / 4
	p.limit = int(min(max(p.rate*batchTime.Seconds(), small), mostBatch))
}

// keep checks the paths until the session is over.
func (c *Conn) keep() {
	defer c.running.Done()
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		select {
		case <-c.over:
			return
		case now := <-ticker.C:
			c.mu.Lock()
			for _, m := range c.members {
				if m.link != nil {
					c.look(m, now)
				}
			}
			c.patienceAt(now)
			wake(c.out.wake) // a path's quota grows with time
			c.mu.Unlock()
		}
	}
}

// look checks one path that is up. c.mu is held.
func (c *Conn) look(m *member, now time.Time) {
	h := &m.health
	moved := m.count.up.Bytes + m.count.down.Bytes
	pause := pingIdle
	if moved != h.moved || m.out.Waiting() > 0 {
		pause = pingEvery
	}
	if h.pinged.IsZero() && now.Sub(h.last) >= pause {
		h.moved, h.pingDue = moved, true
		wake(m.wake)
	}
	if silent := max(silentAfter, 4*h.rtt); !h.pinged.IsZero() && now.Sub(h.pinged) > silent && now.Sub(h.heard) > silent {
		c.drop(m, fmt.Sprintf("nothing came back for %v", silent.Round(time.Second)))
		return
	}
	p := &m.pace
	if p.rate > 0 {
		m.link.fit(p.rate)
	}
	if m.out.Waiting() == 0 || !c.sending() {
		p.since, p.bytes = now, 0
		return
	}
	if passed := now.Sub(p.since); passed >= paceOver {
		if why := m.tooSlow(now); why != "" {
			c.drop(m, why)
		}
		p.since, p.bytes = now, 0
	}
}

// tooSlow returns why a path is too slow, or "" if it kept MinRate. c.mu is held.
func (m *member) tooSlow(now time.Time) string {
	passed, least := now.Sub(m.pace.since), float64(m.c.minRate)
	rate := float64(m.pace.bytes) / passed.Seconds()
	if rate >= least {
		return ""
	}
	return fmt.Sprintf("too slow: %s/s for %v, and at least %s/s are asked for", text.Size(int64(rate)), passed.Round(time.Second), text.Size(int64(least)))
}

// drop closes the connection of a member with a reason. c.mu is held.
func (c *Conn) drop(m *member, why string) {
	if m.link == nil {
		return
	}
	if m.health.verdict == "" {
		m.health.verdict = why
	}
	m.link.shut()
}

// patienceAt fails a session that was blocked for longer than Patience. c.mu is held.
func (c *Conn) patienceAt(now time.Time) {
	blocked := !c.sending()
	if !blocked && (c.scheme.None() || c.up() < c.scheme.K) {
		for _, m := range c.members {
			blocked = blocked || m.link == nil && m.out.Unproved()+m.out.Waiting() > 0
		}
	}
	switch {
	case c.finished || !blocked:
		c.blockedSince = time.Time{}
	case c.blockedSince.IsZero():
		c.blockedSince = now
	case now.Sub(c.blockedSince) >= c.patience:
		e := c.tooFew()
		if c.sending() {
			e.Why = "what is under way on a dead path holds up the rest: " + c.missing()
		}
		c.fail(e)
	}
}

// tlsChanged reports whether TLS ended the connection because the ciphertext was modified on the way.
func tlsChanged(err error) bool {
	var header tls.RecordHeaderError
	var alert *net.OpError // crypto/tls reports alerts of both sides as this type
	return errors.As(err, &header) || errors.As(err, &alert) && strings.HasSuffix(alert.Op, " error") && strings.Contains(alert.Error(), "bad record MAC")
}

// notLetIn reports whether the peer refused this side's key. In TLS 1.3 a client learns that after its handshake, and only
// the peer can send this authenticated alert (RFC 8446, section 6.2).
func notLetIn(err error) bool {
	var alert *net.OpError
	return errors.As(err, &alert) && alert.Op == "remote error" && strings.Contains(alert.Error(), "bad certificate")
}
