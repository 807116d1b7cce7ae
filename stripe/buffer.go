package stripe

import (
	"sync"

	"heddle/internal/segment"
)

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

// frame is a data frame that is sent or waits for it.
type frame struct {
	buf    []byte // whole, with its header
	unit   uint64
	number uint64 // on its leg; 0 before it is sent there
}

// place gives the frame its number.
func (f *frame) place(number uint64) {
	f.number = number
	segment.SetFrame(f.buf, number)
}

// queue is first in, first out. The zero value is empty.
type queue[T any] struct {
	items []T
	head  int
}

func (q *queue[T]) len() int { return len(q.items) - q.head }

func (q *queue[T]) at(i int) *T { return &q.items[q.head+i] }

func (q *queue[T]) push(item T) {
	if q.head > 64 && q.head*2 > len(q.items) {
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	q.items = append(q.items, item)
}

func (q *queue[T]) pop() T {
	var zero T
	item := q.items[q.head]
	q.items[q.head] = zero
	q.head++
	return item
}

// takeAll empties the queue.
func (q *queue[T]) takeAll() []T {
	items := q.items[q.head:]
	*q = queue[T]{}
	return items
}

// ring holds what was written and not cut yet. One goroutine fills it, and one empties it; the counters are under the
// lock of the connection, and what is copied in between is not.
type ring struct {
	b          []byte
	head, tail uint64 // bytes taken out and put in, ever
}

func (r *ring) pending() int { return int(r.tail - r.head) }

func (r *ring) free() int { return len(r.b) - r.pending() }

// put copies p behind the tail at, which the caller moves afterwards.
func (r *ring) put(at uint64, p []byte) {
	i := int(at % uint64(len(r.b)))
	n := copy(r.b[i:], p)
	copy(r.b, p[n:])
}

// get fills p with what follows the place at.
func (r *ring) get(at uint64, p []byte) {
	i := int(at % uint64(len(r.b)))
	n := copy(p, r.b[i:])
	copy(p[n:], r.b)
}

// wake lets a goroutine that waits for the channel, which has room for one, look again.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// offsetOf is where in the stream a frame belongs.
func offsetOf(f *frame) uint64 {
	d, _, _ := segment.ParseData(f.buf[segment.HeaderSize:]) // this side wrote it
	return d.Offset
}
