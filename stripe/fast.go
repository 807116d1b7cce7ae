package stripe

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// planFast gives segments to each member that has room, starting with the shortest queue.
func (c *Conn) planFast(up []int, pending int) []piece {
	up = slices.SortedStableFunc(slices.Values(up), func(a, b int) int { return c.members[a].out.Queued() - c.members[b].out.Queued() })
	quota := c.quotas(up)
	var row []piece
	for n := range atOnce {
		more := n * c.payload()
		for j, i := range up {
			m := c.members[i]
			due := !m.touched && n == 0 || m.given+more < quota[j]
			if due && m.out.Queued()+more < m.pace.limit && pending >= c.payload() {
				row = append(row, piece{i, c.payload()})
				pending -= c.payload()
			}
		}
	}
	return row
}

// pauseWithin is the longest pause in sending within one transfer.
const pauseWithin = 100 * time.Millisecond

// beginTransfer notes the start of a transfer. c.mu is held, here and below.
func (c *Conn) beginTransfer() {
	s := &c.out
	if now := time.Now(); s.since.IsZero() || !s.emptied.IsZero() && now.Sub(s.emptied) > pauseWithin {
		s.since = now
		for _, m := range c.members {
			m.given = 0
		}
	}
	s.emptied = time.Time{}
}

// emptied notes that the ring is empty, so each path takes part in the next transfer again.
func (c *Conn) emptied() {
	c.out.emptied = time.Now()
	for _, m := range c.members {
		m.touched = false
	}
}

// inTime returns the members that take part in sending now. Fast leaves out a distant one that has a part and no quota left.
func (c *Conn) inTime(up []int) []int {
	if c.schedule != Fast {
		return up
	}
	quota := c.quotas(up)
	var kept []int
	for j, i := range up {
		if m := c.members[i]; !m.touched || m.given < quota[j] {
			kept = append(kept, i)
		}
	}
	return kept
}

// quotas returns the number of bytes that each member may get in this transfer. Segments queued on a distant path can delay
// the end of a transfer that near paths would finish sooner, and nobody knows how long the transfer will be. So a distant
// path gets one segment at first, then more as in slow start (RFC 5681), and no limit after 1.5 of its round trips. It
// always gets up to half of an even share, so that the near paths do not see nearly all of a short transfer.
func (c *Conn) quotas(up []int) []int {
	least := time.Duration(math.MaxInt64)
	for _, i := range up {
		least = min(least, c.members[i].roundTrip())
	}
	passed := time.Since(c.out.since)
	given := 0
	for _, i := range up {
		given += c.members[i].given
	}
	quota := make([]int, len(up))
	for j, i := range up {
		quota[j] = max(given/(2*len(up)), quotaOf(c.payload(), passed, c.members[i].roundTrip(), least))
	}
	return quota
}

// littleLater is the difference in round-trip time below which two paths count as equally near.
const littleLater = 20 * time.Millisecond

// quotaOf computes the quota of a path. trip is its round-trip time and least that of the nearest path.
func quotaOf(payload int, passed, trip, least time.Duration) int {
	late := passed - (trip-least)/2
	switch {
	case trip <= 2*least || trip-least < littleLater || passed >= trip+trip/2:
		return math.MaxInt
	case late < 0:
		return 1
	}
	return payload << (3 * late / trip)
}

// roundTrip returns the shortest round-trip time measured, or a guess before the first measurement.
func (m *member) roundTrip() time.Duration {
	return cmp.Or(m.health.least, m.health.guess)
}
