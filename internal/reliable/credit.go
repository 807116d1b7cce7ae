package reliable

import "time"

// credit is what the other side may send. The window widens while it may limit the rate.
type credit struct {
	consumed       uint64 // bytes read
	limit          uint64 // as announced to the other side
	window, widest int
	widened        time.Time
	rtt            func() time.Duration
	memory         *Loan
}

func newCredit(window, widest int, rtt func() time.Duration, memory *Loan) credit {
	return credit{limit: uint64(window), window: window, widest: widest, rtt: rtt, memory: memory}
}

// consume records that n bytes were read, and reports whether that extends the limit of the other side.
func (c *credit) consume(n int, now time.Time) bool {
	c.consumed += uint64(n)
	if c.consumed+uint64(c.window) < c.limit+uint64(c.window)/4 {
		return false
	}
	c.widen(int(c.consumed+uint64(c.window)-c.limit), now)
	c.limit = c.consumed + uint64(c.window)
	return true
}

// widen doubles the window if used bytes since the last call are at least a quarter of it for each half round trip, as it may then
// limit the rate.
func (c *credit) widen(used int, now time.Time) {
	passed := now.Sub(c.widened)
	c.widened = now
	rtt := time.Millisecond
	if c.rtt != nil {
		rtt = max(rtt, c.rtt())
	}
	more := min(c.window, c.widest-c.window)
	if more <= 0 || passed > time.Duration(2*float64(used)/float64(c.window)*float64(rtt)) || !c.memory.Take(int64(more)) {
		return
	}
	c.window += more
}
