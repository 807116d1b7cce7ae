package lab

import (
	"math/bits"
	"time"
)

// Lateness is how much later than due the emulator delivered packets, in milliseconds.
type Lateness struct {
	Packets uint64  `json:"packets"`
	Mean    float64 `json:"mean"`
	P50     float64 `json:"p50"`
	P99     float64 `json:"p99"`
	Max     float64 `json:"max"`
}

// lateness is a histogram with a relative error of 1/16: 16 buckets for each power of two nanoseconds.
type lateness struct {
	buckets [64 * 16]uint64
	packets uint64
	sum     time.Duration
	max     time.Duration
}

func (l *lateness) record(late time.Duration) {
	late = max(late, 0)
	l.buckets[lateBucket(uint64(late))]++
	l.packets++
	l.sum += late
	l.max = max(l.max, late)
}

func lateBucket(v uint64) int {
	if v < 16 {
		return int(v)
	}
	exp := bits.Len64(v) - 5
	return exp*16 + int(v>>exp)
}

// lateBound is the largest value of a bucket.
func lateBound(b int) uint64 {
	if b < 32 {
		return uint64(b)
	}
	exp := b/16 - 1
	return (uint64(b-exp*16)+1)<<exp - 1
}

func (l *lateness) add(other *lateness) {
	for i, n := range other.buckets {
		l.buckets[i] += n
	}
	l.packets += other.packets
	l.sum += other.sum
	l.max = max(l.max, other.max)
}

func (l *lateness) quantile(q float64) time.Duration {
	rank, seen := uint64(q*float64(l.packets)), uint64(0)
	for i, n := range l.buckets {
		seen += n
		if seen > rank {
			return min(time.Duration(lateBound(i)), l.max)
		}
	}
	return l.max
}

func (l *lateness) summary() Lateness {
	if l.packets == 0 {
		return Lateness{}
	}
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	return Lateness{l.packets, ms(l.sum) / float64(l.packets), ms(l.quantile(0.5)), ms(l.quantile(0.99)), ms(l.max)}
}
