package lab

import (
	"container/heap"
	"math/rand/v2"
	"time"
)

// maxInFlight bounds the packets in flight in one direction, whatever the shape says.
const maxInFlight = 16384

// maxPacket is the largest IP packet that the emulator carries, in bytes.
const maxPacket = 9216

// Counters count the packets of one direction of an emulated link.
type Counters struct {
	Packets        uint64 `json:"packets"` // received
	Bytes          uint64 `json:"bytes"`
	Delivered      uint64 `json:"delivered"` // sent at the other end
	DeliveredBytes uint64 `json:"delivered_bytes"`
	// Lost counts Shape.Loss and cut links, Overflowed full queues, and Refused packets that the far kernel did not take.
	Lost       uint64 `json:"lost"`
	Overflowed uint64 `json:"overflowed"`
	Refused    uint64 `json:"refused"`
	Reordered  uint64 `json:"reordered"`
	Duplicated uint64 `json:"duplicated"` // packets that arrive once more than they were sent
}

// queue is one direction of a link as pure code: times are durations since a fixed moment, and never decrease.
//
// The token bucket is kept as the virtual time at which the wire is free (the generic cell rate algorithm, ITU-T
// I.371), so that a late wake-up delays a packet but does not lower the rate.
type queue struct {
	shape Shape
	cut   bool
	rng   *rand.Rand
	count Counters

	free    time.Duration // when the wire is free
	last    time.Duration // delivery of the last packet in order
	waiting []departure   // accepted, not yet on the wire; oldest first
	backlog int           // bytes of waiting
	flying  flights
	serial  uint64
	since   int // packets since the shape was set
}

type departure struct {
	at   time.Duration
	size int
}

type flight struct {
	due    time.Duration
	serial uint64
	packet []byte
}

func newQueue(s Shape, seed1, seed2 uint64) *queue {
	return &queue{shape: s, rng: rand.New(rand.NewPCG(seed1, seed2)), free: -time.Hour} // a full bucket
}

// push accepts a packet that arrives now and keeps it, or drops it and returns false.
func (q *queue) push(now time.Duration, packet []byte) bool {
	q.count.Packets++
	q.count.Bytes += uint64(len(packet))
	q.since++
	if q.cut || q.happens(q.shape.Loss) {
		q.count.Lost++
		return false
	}
	leaves, ok := q.reserve(now, len(packet))
	if !ok {
		q.count.Overflowed++
		return false
	}
	q.fly(leaves, packet)
	if q.happens(q.shape.Duplicate) && len(q.flying) < maxInFlight {
		q.count.Duplicated++
		q.fly(leaves, append(make([]byte, 0, maxPacket), packet...))
	}
	return true
}

// reshape sets the shape.
func (q *queue) reshape(s Shape) { q.shape, q.since = s, 0 }

// happens reports whether something befalls the packet that came last.
func (q *queue) happens(p float64) bool {
	return p > 0 && (q.shape.Only == 0 || q.shape.Only == q.since) && q.rng.Float64() < p
}

// fly sends a packet on its way when it has left.
func (q *queue) fly(leaves time.Duration, packet []byte) {
	q.serial++
	heap.Push(&q.flying, flight{q.arrival(leaves), q.serial, packet})
}

// reserve returns when the last of size bytes leaves at the rate, or false if the queue is full.
func (q *queue) reserve(now time.Duration, size int) (time.Duration, bool) {
	gone := 0
	for gone < len(q.waiting) && q.waiting[gone].at <= now {
		q.backlog -= q.waiting[gone].size
		gone++
	}
	q.waiting = q.waiting[gone:]
	maxBytes, maxPackets := q.shape.limits()
	if len(q.flying) >= maxInFlight ||
		(maxBytes > 0 && q.backlog > 0 && q.backlog+size > maxBytes) ||
		(maxPackets > 0 && len(q.waiting) >= maxPackets) {
		return 0, false
	}
	q.free = max(q.free, now-q.shape.airtime(q.shape.Burst)) + q.shape.airtime(size)
	leaves := max(now, q.free)
	if leaves > now {
		q.waiting = append(q.waiting, departure{leaves, size})
		q.backlog += size
	}
	return leaves, true
}

// arrival returns when a packet that leaves at that time arrives.
func (q *queue) arrival(leaves time.Duration) time.Duration {
	if q.happens(q.shape.Reorder) {
		q.count.Reordered++
		return leaves
	}
	due := leaves + q.shape.Delay
	if q.shape.Jitter > 0 {
		due += time.Duration(q.rng.Int64N(2*int64(q.shape.Jitter)+1)) - q.shape.Jitter
	}
	q.last = max(q.last, due)
	return q.last
}

// next returns when the next packet is due.
func (q *queue) next() (time.Duration, bool) {
	if len(q.flying) == 0 {
		return 0, false
	}
	return q.flying[0].due, true
}

// pop returns a due packet and its due time.
func (q *queue) pop(now time.Duration) (packet []byte, due time.Duration, ok bool) {
	if len(q.flying) == 0 || q.flying[0].due > now {
		return nil, 0, false
	}
	f := heap.Pop(&q.flying).(flight)
	return f.packet, f.due, true
}

// flights is a heap by due time; packets due at once keep their order.
type flights []flight

func (f flights) Len() int { return len(f) }
func (f flights) Less(i, j int) bool {
	return f[i].due < f[j].due || (f[i].due == f[j].due && f[i].serial < f[j].serial)
}
func (f flights) Swap(i, j int) { f[i], f[j] = f[j], f[i] }
func (f *flights) Push(x any)   { *f = append(*f, x.(flight)) }
func (f *flights) Pop() any {
	old := *f
	last := old[len(old)-1]
	old[len(old)-1] = flight{}
	*f = old[:len(old)-1]
	return last
}
