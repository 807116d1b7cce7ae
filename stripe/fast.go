package stripe

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// planFast gives segments to each member that has room, first to the one that waits for least.
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

// pauseWithin is how long nothing may be there to send within one transfer.
const pauseWithin = 100 * time.Millisecond

// beginTransfer notes when a transfer began. c.mu is held, here and below.
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

// emptied notes that the ring is empty: what comes next touches every path anew.
func (c *Conn) emptied() {
	c.out.emptied = time.Now()
	for _, m := range c.members {
		m.touched = false
	}
}

// inTime leaves the members that take a part of what is sent now: all, but where fast holds a distant one back that has a
// part already.
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

// quotas are how many bytes members may have been given in this transfer. What waits for a distant path would hold up the
// end of a transfer that the others could have done by then. How long it will last nobody knows, so such a path gets one
// segment, then more the longer it lasts already, as a connection would in slow start (RFC 5681), and all that it takes
// after one and a half of its round trips. It may always have half of an even part, so that the near paths do not see nearly
// all of what is short.
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

// littleLater is by how much a path's round trip may be longer than another's without any thought.
const littleLater = 20 * time.Millisecond

// quotaOf is for a path of a round trip, where that of the nearest is least, and so much time has passed.
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

// roundTrip is the shortest of the member, as far as it is known.
func (m *member) roundTrip() time.Duration {
	return cmp.Or(m.health.least, m.health.guess)
}
