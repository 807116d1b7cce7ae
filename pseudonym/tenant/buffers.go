package tenant

// buffers are those by which answers are copied. A large one takes fewer calls of the system, and there are not so many of them that visitors who read slowly
// could fill the memory.
type buffers chan []byte

const (
	largeBuffers = 128
	largeBuffer  = 256 << 10
	smallBuffer  = 32 << 10
)

func newBuffers() buffers {
	b := make(buffers, largeBuffers)
	for range largeBuffers {
		b <- nil // made when it is needed
	}
	return b
}

// Get implements [httputil.BufferPool].
func (b buffers) Get() []byte {
	select {
	case p := <-b:
		if p == nil {
			p = make([]byte, largeBuffer)
		}
		return p
	default:
		return make([]byte, smallBuffer)
	}
}

// Put implements [httputil.BufferPool].
func (b buffers) Put(p []byte) {
	if len(p) == largeBuffer {
		b <- p
	}
}
