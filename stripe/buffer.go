package stripe

import "sync"

// Buffers up to this size are not pooled, so that many small segments hold little memory.
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

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// wake signals c, which has room for one token.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
