package random

import (
	"crypto/sha256"
	"math/rand/v2"
	"time"
)

// shape is the distribution of lengths and pauses of one bridge.
type shape struct {
	hello float64    // mean padding of the first block, in bytes
	small float64    // mean padding of a block that does not fill the connection, in bytes
	pause float64    // mean time after such a block before the next one, in seconds
	large [6]float64 // shares of the pace that a large block has
}

// Padding is bounded so that it costs little: a download over Tor has some 700 small blocks of 600 bytes a megabyte.
const (
	mostHello = 800                  // bytes: the first block fits into one packet
	mostSmall = 160                  // bytes
	mostPause = 4 * time.Millisecond // far below the round trip of any network that is filtered
)

// shapeOf draws the shape from a bridge's seed. Both ends get the same one.
func shapeOf(seed []byte) (s shape) {
	r := rand.New(rand.NewChaCha8(sha256.Sum256(append([]byte("heddle disguise 1 cover random"), seed...))))
	s.hello = 100 + 200*r.Float64()
	s.small = 8 + 24*r.Float64()
	s.pause = 0.0003 + 0.0007*r.Float64()
	for i := range s.large {
		s.large[i] = 0.4 + 0.6*r.Float64()
	}
	return s
}

// padding draws how many bytes a small block gets beyond what waits.
func (s *shape) padding(r *rand.Rand, first bool) int {
	if first {
		return min(int(r.ExpFloat64()*s.hello), mostHello)
	}
	return min(int(r.ExpFloat64()*s.small), mostSmall)
}

// largeBlock draws the length of a block that does fill the connection.
func (s *shape) largeBlock(r *rand.Rand, pace int) int {
	return int(float64(pace) * s.large[r.IntN(len(s.large))])
}

func (s *shape) rest(r *rand.Rand) time.Duration {
	return min(time.Duration(r.ExpFloat64()*s.pause*float64(time.Second)), mostPause)
}

// age draws the age at which a connection ends, at most most.
func (s *shape) age(r *rand.Rand, most time.Duration) time.Duration {
	return time.Duration((0.5 + 0.5*r.Float64()) * float64(most))
}
