package reliable

import "time"

// credit is what the other side may send. The window widens while it may limit the rate.
type credit struct {
	consumed       uint64 // bytes read
	limit          uint64 // as announced to the other side
	window, widest int
	widened        time.Time
	rtt            func() time.Duration
	reserve        func(more int64) bool
}

func newCredit(window, widest int, rtt func() time.Duration, reserve func(int64) bool) credit {
	return credit{limit: uint64(window), window: window, widest: widest, rtt: rtt, reserve: reserve}
}

// consume records that n bytes were read, and reports whether that extends the limit of the other side.
func (c *credit) consume(n int, now time.Time) bool {
	c.consumed += uint64(n)
	if c.consumed+uint64(c.window) < c.limit+uint64(c.window)/4 {
		return false
	}
	c.widen(now)
	c.limit = c.consumed + uint64(c.window)
	return true
}

// widen doubles the window if a quarter of it was used within half a round trip, as it may then limit the rate.
func (c *credit) widen(now time.Time) {
	passed := now.Sub(c.widened)
	c.widened = now
	rtt := time.Millisecond
	if c.rtt != nil {
		rtt = max(rtt, c.rtt())
	}
	more := min(c.window, c.widest-c.window)
	if more <= 0 || passed > rtt/2 || c.reserve != nil && !c.reserve(int64(more)) {
		return
	}
	c.window += more
}
