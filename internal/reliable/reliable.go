// Package reliable is the state of one ordered, acknowledged byte stream over several carriers. The sender cuts the stream into
// units and keeps each until the other side has it. The receiver puts in order what arrives by any carrier, within bounds.
//
// The package holds state only: it opens no connections, starts no goroutines, takes no locks and reads no clock. A carrier
// moves units, for example in a TLS connection, or in the blocks of cover connections. The caller decides which carrier takes
// which unit, and how units look on the wire.
//
// A [Sender] numbers units in one of two ways. Where a unit always travels whole ([ByUnit]), the caller cuts units
// with [Sender.Cut] and queues each at the [Outbox] of a carrier. Where the room of a block differs from block to block
// ([ByByte]), the caller asks [Sender.Fill] for at most so many bytes; a unit that was lost may then go out again in
// smaller parts. The receiver of the stream uses the same numbering.
//
// Do not use it over one reliable connection, which has all this already.
package reliable

import "errors"

// Numbering is what acknowledgements count.
type Numbering int

// The ways to number units.
const (
	// ByUnit counts units. A unit is never split, and may be empty.
	ByUnit Numbering = iota
	// ByByte counts bytes: the number of a unit is the place of its first byte.
	ByByte
)

// span is how many numbers a unit has.
func (n Numbering) span(size int) uint64 {
	if n == ByByte {
		return uint64(size)
	}
	return 1
}

// Unit is a part of the stream that is sent and acknowledged.
type Unit struct {
	Number uint64 // see [Numbering]
	Offset uint64 // place of its first byte in the stream
	Size   int    // bytes of the stream in it
	Seq    uint64 // its number among what its carrier was given, from 1; 0 before that
	// Buf holds what the carrier moves, from Head on: the bytes of the unit, or a share of them. What is before Head is the
	// caller's, for a header.
	Buf  []byte
	Head int
}

// Data is the unit without what is before it in its buffer.
func (u *Unit) Data() []byte { return u.Buf[u.Head:] }

// part is a copy of some bytes of the unit, which is numbered by bytes.
func (u *Unit) part(from, to uint64) *Unit {
	data := u.Data()[from-u.Number : to-u.Number]
	return &Unit{Number: from, Offset: from, Size: len(data), Buf: append([]byte(nil), data...)}
}

// End is the end of the stream. It counts as one number behind the last unit.
type End struct {
	Unit   uint64 // the number that follows the last unit
	Offset uint64 // the length of the stream
}

// ErrViolation is matched by all errors that are the other side's fault.
var ErrViolation = errors.New("the stream's rules are broken")

type violation string

func (v violation) Error() string { return string(v) }

func (v violation) Unwrap() error { return ErrViolation }

// fifo is first in, first out. The zero value is empty.
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

// takeAll empties the queue.
func (q *fifo) takeAll() []Unit {
	items := q.items[q.head:]
	*q = fifo{}
	return items
}
