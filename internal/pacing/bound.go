package pacing

import "time"

const (
	// A round trip lost too much if it lost more than one packet of lossShare, and more than leastLost: fewer may be chance.
	lossShare = 50
	leastLost = 2
	// fullRound is how many packets a round trip has whose success says that the network carries more.
	fullRound = 10
	// rounds is over how many round trips the rate of delivery is the greatest. BBR itself takes ten.
	rounds = 10
	// most is above any rate that matters, and a number that all kernels take.
	most = 1<<31 - 1
)

// sample is what the kernel says of a connection.
type sample struct {
	rtt        time.Duration // smoothed
	delivered  uint64        // bytes per second, lately
	sent, lost uint32        // packets with data so far, and those sent again
	inFlight   uint32        // packets
	segment    uint32        // bytes
}

// bound finds how fast a connection may send. Its zero value is that of a new connection.
type bound struct {
	sent, lost uint32
	delivered  [rounds]uint64 // by round trip
	round      int
	rate       uint64 // bytes per second; 0 is no bound
}

// take takes the sample of a round trip, and reports whether the bound changed.
//
// After a loss the bound leaves a quarter more than what the network delivered, as BBR does when it looks for more. Each full round
// trip without one raises it by a sixteenth, so in the eight round trips of such a cycle by two thirds.
func (b *bound) take(s sample) bool {
	sent, lost := s.sent-b.sent, s.lost-b.lost
	b.sent, b.lost = s.sent, s.lost
	b.delivered[b.round%rounds] = s.delivered
	b.round++
	before := b.rate
	switch {
	case lost > leastLost && lost*lossShare > sent:
		var best uint64
		for _, d := range b.delivered {
			best = max(best, d)
		}
		b.rate = best + best/4
	case sent >= fullRound:
		b.rate += b.rate / 16
	}
	b.rate = min(b.rate, most)
	return b.rate != before
}
