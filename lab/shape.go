package lab

import (
	"fmt"
	"time"
)

// Shape is what a link does to the packets of one direction. The zero value does nothing.
type Shape struct {
	Delay  time.Duration // one-way, in addition to the transmission time at Rate
	Jitter time.Duration // uniform deviation from Delay; keeps the order of packets
	Rate   int64         // in bit/s, of whole IP packets; 0 is unlimited
	Burst  int           // depth of the token bucket in bytes; 0 allows no bursts
	// QueueBytes and QueuePackets bound the queue for Rate, which drops its tail. If both are 0, it holds 100 ms at
	// Rate, and at least 20 packets of 1500 bytes.
	QueueBytes   int
	QueuePackets int
	Loss         float64 // probability, independent for each packet
	Reorder      float64 // probability that a packet skips Delay and overtakes others
	Duplicate    float64 // probability that a packet arrives twice, as after a link layer's retransmission
	// Only is the one packet that Loss, Reorder and Duplicate may befall, counted from 1 since the shape was set; 0 is each packet.
	Only int
}

// Both sets the shape of both directions of a link.
func (l LinkSpec) Both(s Shape) LinkSpec {
	l.AtoB, l.BtoA = s, s
	return l
}

// Validate returns an error if the shape is invalid.
func (s Shape) Validate() error {
	switch {
	case s.Delay < 0 || s.Jitter < 0 || s.Delay > time.Minute:
		return fmt.Errorf("delay %v with jitter %v: not in 0 to 1m", s.Delay, s.Jitter)
	case s.Jitter > s.Delay:
		return fmt.Errorf("jitter %v is larger than the delay %v", s.Jitter, s.Delay)
	case s.Rate < 0 || s.Burst < 0 || s.QueueBytes < 0 || s.QueuePackets < 0 || s.Only < 0:
		return fmt.Errorf("rate, burst, queue and the number of a packet cannot be negative")
	case !(s.Loss >= 0 && s.Loss <= 1) || !(s.Reorder >= 0 && s.Reorder <= 1) || !(s.Duplicate >= 0 && s.Duplicate <= 1):
		return fmt.Errorf("loss %v, reorder %v and duplicate %v: not in 0 to 1", s.Loss, s.Reorder, s.Duplicate)
	}
	return nil
}

// limits returns the bounds of the queue in bytes and packets; 0 is unbounded.
func (s Shape) limits() (bytes, packets int) {
	if s.QueueBytes == 0 && s.QueuePackets == 0 {
		return max(int(s.Rate/8/10), 20*1500), 0
	}
	return s.QueueBytes, s.QueuePackets
}

// airtime is the transmission time of n bytes.
func (s Shape) airtime(n int) time.Duration {
	if s.Rate == 0 {
		return 0
	}
	return time.Duration(int64(n) * 8 * int64(time.Second) / s.Rate)
}
