package lab

import (
	"fmt"
	"time"
)

// Shape is what a link does to the packets of one direction. The zero value does nothing.
type Shape struct {
	// Delay is the one-way delay, on top of the time that the packet takes at Rate.
	Delay time.Duration
	// Jitter is added to or taken from Delay, uniformly. It keeps the order of packets.
	Jitter time.Duration
	// Rate is in bits a second, counting IP packets from their first header on; 0 is unlimited.
	Rate int64
	// Burst is the depth of the token bucket in bytes; 0 lets no packet leave ahead of Rate.
	Burst int
	// QueueBytes and QueuePackets bound what waits for Rate; what comes on top is dropped. Where both are 0 the queue
	// holds 100 ms at Rate, and at least 20 packets of 1500 bytes.
	QueueBytes   int
	QueuePackets int
	// Loss is the probability that a packet is lost, independent of all others.
	Loss float64
	// Reorder is the probability that a packet skips Delay and so overtakes others.
	Reorder float64
}

// Both gives the shape for both directions of a link.
func (l LinkSpec) Both(s Shape) LinkSpec {
	l.AtoB, l.BtoA = s, s
	return l
}

// Validate says what is wrong with the shape, if anything is.
func (s Shape) Validate() error {
	switch {
	case s.Delay < 0 || s.Jitter < 0 || s.Delay > time.Minute:
		return fmt.Errorf("delay %v with jitter %v: not in 0 to 1m", s.Delay, s.Jitter)
	case s.Jitter > s.Delay:
		return fmt.Errorf("jitter %v is larger than the delay %v", s.Jitter, s.Delay)
	case s.Rate < 0 || s.Burst < 0 || s.QueueBytes < 0 || s.QueuePackets < 0:
		return fmt.Errorf("rate, burst and queue cannot be negative")
	case !(s.Loss >= 0 && s.Loss <= 1) || !(s.Reorder >= 0 && s.Reorder <= 1):
		return fmt.Errorf("loss %v and reorder %v: not in 0 to 1", s.Loss, s.Reorder)
	}
	return nil
}

// limits gives the bounds of the queue in bytes and packets; 0 is no bound.
func (s Shape) limits() (bytes, packets int) {
	if s.QueueBytes == 0 && s.QueuePackets == 0 {
		return max(int(s.Rate/8/10), 20*1500), 0
	}
	return s.QueueBytes, s.QueuePackets
}

// airtime is how long n bytes take at the rate.
func (s Shape) airtime(n int) time.Duration {
	if s.Rate == 0 {
		return 0
	}
	return time.Duration(int64(n) * 8 * int64(time.Second) / s.Rate)
}
