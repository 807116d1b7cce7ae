package stripe

import "sync"

// Segments of the usual size come from a pool; small ones are cut to measure, so that many of them hold little memory.
const small = 4 << 10

var segments = sync.Pool{New: func() any { return new([DefaultSegment]byte) }}

func takeBuffer(n int) []byte {
	if n <= small || n > DefaultSegment {
		return make([]byte, n)
	}
	return segments.Get().(*[DefaultSegment]byte)[:n]
}

func giveBuffer(b []byte) {
	if cap(b) == DefaultSegment {
		segments.Put((*[DefaultSegment]byte)(b[:DefaultSegment]))
	}
}

// isClosed reports whether a channel on which nothing is sent is closed.
func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// wake lets a goroutine that waits for the channel, which has room for one, look again.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
