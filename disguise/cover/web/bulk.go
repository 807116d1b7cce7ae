package web

import (
	"math"
	"slices"
	"time"
)

// wornCost is how many times as much each byte by the best that is left of a page costs, from which on another page is opened. Over a long link
// connections that fetch small pictures wait for most of the time.
const wornCost = 1.25

// fitting returns which load of the page brings so many bytes at the least cost for each. It returns -1 if no load is worth a round trip. worn reports
// that other connections should not have to take what is left of the page. v.mu is held.
func (v *visit) fitting(p *view, want int) (best int, worn bool) {
	best = -1
	trip := v.trip(time.Now())
	var least, left, first float64
	for i, l := range p.rest {
		if !slices.Contains(l.of.bulk, l.load) {
			continue
		}
		it := v.items[l.number]
		if price := it.price(want, trip); best < 0 || price < least {
			best, least = i, price
		}
		if price := it.price(math.MaxInt, trip); left == 0 || price < left {
			left = price
		}
	}
	for _, l := range p.page.bulk {
		if price := v.items[l.number].price(math.MaxInt, trip); first == 0 || price < first {
			first = price
		}
	}
	return best, left > wornCost*first
}

// price is the cost of each byte, if the answer is to bring so many.
func (it *item) price(want, trip int) float64 {
	return float64(headersCost+trip+it.grown) / float64(min(it.carries(), max(want, leastBulk)))
}

// trip is how many bytes a connection does not carry during a round trip.
func (v *visit) trip(now time.Time) int {
	return max(roundCost, int(v.rate(now)*v.lag.Seconds())/len(v.views))
}

// short reports whether what is left of the page will not last until the next document is there. v.mu is held.
func (v *visit) short(p *view) bool {
	left := 0
	for _, l := range p.rest {
		if slices.Contains(l.of.bulk, l.load) {
			left++
		}
	}
	return left < len(v.views)
}
