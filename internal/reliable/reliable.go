// Package reliable is the state of one ordered, acknowledged byte stream over several carriers. A sender cuts the stream
// into units and keeps each until it is acknowledged. A receiver restores the order within limits.
//
// The package does no I/O, and has no goroutines, locks or clock. A carrier moves units, for example over a TLS connection
// or in blocks of cover connections. The caller chooses the carrier of each unit and the wire format.
//
// With [ByUnit], units travel whole: the caller cuts them with [Sender.Cut] and queues each at the [Outbox] of a carrier.
// With [ByByte], the room of a block varies: the caller asks [Sender.Fill] for a maximum size, and a lost unit may go out
// again in smaller parts. Both sides use the same numbering. Do not use this package over one reliable connection.
package reliable

import "errors"

// Numbering is the unit of acknowledgements.
type Numbering int

const (
	ByUnit Numbering = iota // counts units; a unit is never split, and may be empty
	ByByte                  // counts bytes; the number of a unit is the offset of its first byte
)

// span returns how many numbers a unit has.
func (n Numbering) span(size int) uint64 {
	if n == ByByte {
		return uint64(size)
	}
	return 1
}

// Unit is a part of the stream that is sent and acknowledged as one.
type Unit struct {
	Number uint64 // see [Numbering]
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

// part copies some bytes of a unit of [ByByte].
func (u *Unit) part(from, to uint64) *Unit {
	data := u.Data()[from-u.Number : to-u.Number]
	return &Unit{Number: from, Offset: from, Size: len(data), Buf: append([]byte(nil), data...)}
}

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
