package web

import (
	"math"
	"slices"
	"time"
)

// demand is what a client knows of how much it should ask for: what the bridge holds, what the answers on the way will bring, and how fast the stream
// arrives. The mutex of its visit guards it.
type demand struct {
	held  int           // bytes that the bridge held for the client when it last said so
	going []*flight     // requests on the way
	lag   time.Duration // shortest time from a request to the head of its answer
	flow  float64       // bytes of the stream that arrived, of which those before a span count for 1/e
	at    time.Time     // of the last ones
	run   int           // bytes of the stream that came without a pause
}

const (
	// leastAnswer is how much an answer is taken to bring soon, if it has so much room and its connection may be as fast as others.
	leastAnswer = 96 << 10
	// mostPadded is after how many bytes of padding in an answer the client asks for nothing ahead.
	mostPadded = 20 << 10
	// longRun is after how many bytes without a pause a stream will likely go on.
	longRun = 2 << 20
	// aheadShare bounds what is asked for ahead: one such part of what came without a pause. It is padding if the stream ends.
	aheadShare = 4
)

// span is the time after which the answer to a request should be there, with most of what it can bring soon.
func (d *demand) span() time.Duration { return 2*d.lag + 100*time.Millisecond }

// rate is how many bytes of the stream arrive per second.
func (d *demand) rate(now time.Time) float64 {
	return d.flow * math.Exp(-max(0, now.Sub(d.at).Seconds())/d.span().Seconds()) / d.span().Seconds()
}

// ahead is how much to ask for before the bridge says that it has it: what comes there until a request that leaves now is answered. Without it the bridge
// has nothing to answer for a round trip after each answer.
func (d *demand) ahead(now time.Time) int {
	n := int(d.rate(now) * (3*d.lag/2 + 50*time.Millisecond).Seconds())
	if n = min(n, d.run/aheadShare); n < leastBulk {
		return 0
	}
	return n
}

// wanted is how much the answers on the way should bring: what the bridge holds, or what comes there meanwhile if that is more. While a long stream
// goes on, it is both, so that no connection waits.
func (d *demand) wanted(now time.Time) int {
	if d.run > longRun {
		return d.held + d.ahead(now)
	}
	return max(d.held, d.ahead(now))
}

// expected is how much the answers on the way will soon bring. Those that left long ago bring no more than what arrives anyway, since a connection
// may be slow.
func (d *demand) expected(now time.Time) int {
	young, old := 0, 0
	for _, it := range d.going {
		n := min(it.carries()-it.arrived, max(leastAnswer, int(d.rate(now)*d.span().Seconds()/2)))
		if now.Sub(it.left) < d.span() {
			young += n
		} else {
			old += n
		}
	}
	return young + min(old, int(d.rate(now)*d.span().Seconds()))
}

// asked is how much room the answers on the way have.
func (d *demand) asked() (bytes int) {
	for _, it := range d.going {
		bytes += it.carries() - it.arrived
	}
	return bytes
}

// leaves notes a request. The answer brings nothing to a client that the bridge does not know.
func (d *demand) leaves(it *flight, known bool, now time.Time) {
	if it.left = now; !known {
		it.arrived = it.carries()
	}
	d.going = append(d.going, it)
}

// ends notes that an answer ended.
func (d *demand) ends(it *flight) {
	d.going = slices.DeleteFunc(d.going, func(o *flight) bool { return o == it })
}

// begins notes that the head of an answer came after a time.
func (v *visit) begins(after time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.lag == 0 || after < v.lag {
		v.lag = after
	}
}

// took notes bytes of blocks that arrived, with so many bytes of the stream.
func (v *visit) took(it *flight, bytes, stream int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	it.arrived += min(bytes, it.carries()-it.arrived)
	now := time.Now()
	if v.run += stream; now.Sub(v.at) > 2*v.span() {
		v.run = stream
	}
	v.flow = v.rate(now)*v.span().Seconds() + float64(stream)
	v.at = now
	if it.padded += bytes; stream > 0 {
		it.padded = 0
	}
	if it.padded >= mostPadded { // the bridge has no more
		v.flow, v.run = 0, 0
	}
	v.changed()
}
