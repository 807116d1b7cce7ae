// Package reliable is the state of one ordered, acknowledged byte stream over several carriers. A sender keeps what it sent until
// it is acknowledged. A receiver restores the order within limits.
//
// The package does no I/O, and has no goroutines, locks or clock. A carrier moves parts of the stream, for example over a TLS
// connection or in blocks of cover connections. The caller chooses the carrier of each part and the wire format.
//
// With [Sender] and [Receiver], the caller cuts the stream into units, which stay whole, and queues each at the [Outbox] of a carrier.
// With [ByteSender] and [ByteReceiver], the room of a block varies: the caller asks for a part with a maximum size, and
// lost bytes may go out again in other parts. Do not use this package over one reliable connection.
package reliable

import "errors"

// Unit is a part of the stream that is sent and acknowledged as one.
type Unit struct {
	Number uint64 // units count from 0
	Offset uint64 // of its first byte in the stream
	Size   int    // bytes of the stream
	Seq    uint64 // number among the units of its carrier, from 1; 0 before it has a carrier
	// Buf[Head:] holds the bytes of the unit, or a share of them. The bytes before are for a header of the caller.
	Buf  []byte
	Head int
	// More says that the rest of what was written at once is in the units that follow.
	More bool
}

// Data returns the buffer without the room for a header.
func (u *Unit) Data() []byte { return u.Buf[u.Head:] }

// End is the end of the stream. It counts as one number after the last unit.
type End struct {
	Unit   uint64 // the number after the last unit
	Offset uint64 // the length of the stream
}

// ErrViolation matches all errors that are the other side's fault.
var ErrViolation = errors.New("the stream's rules are broken")

type violation string

func (v violation) Error() string { return string(v) }

func (v violation) Unwrap() error { return ErrViolation }

type fifo struct {
	items []Unit
	head  int
}

func (q *fifo) len() int { return len(q.items) - q.head }

func (q *fifo) at(i int) *Unit { return &q.items[q.head+i] }

func (q *fifo) push(u Unit) {
	if q.head > 64 && q.head*2 > len(q.items) {
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	q.items = append(q.items, u)
}

func (q *fifo) pop() Unit {
	u := q.items[q.head]
	q.items[q.head] = Unit{}
	q.head++
	return u
}

func (q *fifo) takeAll() []Unit {
	items := q.items[q.head:]
	*q = fifo{}
	return items
}
