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
	least      time.Duration // shortest round trip, lately
}

// per returns the rate of so many packets in a round trip.
func (s sample) per(packets uint32) uint64 {
	return uint64(packets) * uint64(s.segment) * uint64(time.Second) / uint64(max(s.rtt, leastPause))
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
// After a loss the bound leaves a quarter more than what the network delivered, as BBR does when it looks for more. But it leaves room for full
// round trips: what was delivered is what the program wrote, if that was little, and a connection below it would never rise. Each full round
// trip without a loss raises the bound by a sixteenth, so in the eight round trips of such a cycle by two thirds, and by a quarter while no queue
// makes round trips longer.
func (b *bound) take(s sample) bool {
	sent, lost := s.sent-b.sent, s.lost-b.lost
	b.sent, b.lost = s.sent, s.lost
	b.delivered[b.round%rounds] = s.delivered
	b.round++
	before := b.rate
	switch {
	case lost > leastLost && lost*lossShare > sent:
		best := s.per(fullRound)
		for _, d := range b.delivered {
			best = max(best, d)
		}
		b.rate = best + best/4
	case sent >= fullRound && s.rtt < s.least+s.least/4:
		b.rate += b.rate / 4
	case sent >= fullRound:
		b.rate += b.rate / 16
	}
	b.rate = min(b.rate, most)
	return b.rate != before
}
