package reliable

import (
	"fmt"
	"slices"
	"time"

	"github.com/google/btree"
)

// ReceiverOptions are the bounds of a receiver.
type ReceiverOptions struct {
	Numbering Numbering
	Window    int // bytes that may be unread or out of order at first
	Widest    int // and at most
	Ahead     int // units that may be held out of order
	// RTT is the longest round trip, and Reserve asks for memory before the window grows; nil for none and always.
	RTT     func() time.Duration
	Reserve func(more int64) bool
	// Free takes back a buffer; nil leaves it to the garbage collector.
	Free func([]byte)
}

// Receiver is the half of a stream that is read. Calls must not overlap.
type Receiver struct {
	o        ReceiverOptions
	held     *btree.BTreeG[*Unit] // out of order; no two have a number in common
	next     uint64               // the first number that is not in order yet; the end counts as one
	offset   uint64               // bytes of the stream that are in order
	consumed uint64               // and that were read
	limit    uint64               // as the other side may know
	window   int
	widened  time.Time
	ready    fifo
	discard  bool
	end      *End
	ended    bool
	ackDue   bool
}

// NewReceiver makes the receiver of an empty stream.
func NewReceiver(o ReceiverOptions) *Receiver {
	return &Receiver{o: o, limit: uint64(o.Window), window: o.Window,
		held: btree.NewG(16, func(a, b *Unit) bool { return a.Number < b.Number })}
}

// Check holds a unit against what may come.
func (r *Receiver) Check(u *Unit) error {
	end := u.Number + r.o.Numbering.span(u.Size)
	switch {
	case r.o.Numbering == ByUnit && u.Number >= r.next+uint64(r.o.Ahead):
		return violation(fmt.Sprintf("unit %d, while unit %d is not there", u.Number, r.next))
	case r.o.Numbering == ByByte && u.Number != u.Offset:
		return violation(fmt.Sprintf("byte %d is said to be at %d", u.Number, u.Offset))
	case u.Size < 0 || end < u.Number || u.Offset+uint64(u.Size) > r.limit || u.Offset > r.limit:
		return violation("more than it may send")
	case r.end != nil && end > r.end.Unit:
		return violation("a segment behind the end")
	}
	return nil
}

// Has reports whether all of a unit arrived before.
func (r *Receiver) Has(u *Unit) bool {
	if r.o.Numbering == ByUnit {
		return u.Number < r.next || r.held.Has(u)
	}
	return u.Number+uint64(u.Size) <= r.next
}

// Take takes a unit that arrived, and its buffer. It reports whether any of it is new. An error means that the other side
// broke the rules, and the stream is of no use any more.
func (r *Receiver) Take(u Unit, now time.Time) (fresh bool, err error) {
	if err := r.Check(&u); err != nil {
		return false, err
	}
	if r.o.Numbering == ByByte && u.Size != len(u.Data()) {
		return false, violation(fmt.Sprintf("%d bytes, of which %d came", u.Size, len(u.Data())))
	}
	switch {
	case u.Number+r.o.Numbering.span(u.Size) <= r.next:
		r.free(u.Buf)
		return false, nil
	case r.o.Numbering == ByUnit && u.Number > r.next:
		early := u // on the heap, where what is in turn need not be
		before, again := r.held.ReplaceOrInsert(&early)
		if again {
			r.free(before.Buf)
		}
		return !again, nil
	case u.Number > r.next || r.o.Numbering == ByByte && r.held.Len() > 0:
		early := u
		fresh = r.insert(r.unread(&early))
	default:
		if err := r.deliver(r.unread(&u), now); err != nil {
			return false, err
		}
		fresh = true
	}
	if r.held.Len() > 2*(r.o.Ahead+r.window/small) { // one for each gap, and those that are too large to be joined
		return false, violation(fmt.Sprintf("%d parts out of order", r.held.Len()))
	}
	return fresh, r.advance(now)
}

// unread is the unit without what is in order already, where units are numbered by bytes.
func (r *Receiver) unread(u *Unit) *Unit {
	if r.o.Numbering == ByUnit || u.Number >= r.next {
		return u
	}
	return u.part(r.next, u.Number+uint64(u.Size))
}

// small is how large a part is at most that is joined to its neighbours, so that tiny ones do not cost much more memory
// than they have bytes.
const small = 1 << 10

// insert holds those parts of a unit that are not held yet. Parts never overlap, so that what is held is bounded by the
// window.
func (r *Receiver) insert(u *Unit) (fresh bool) {
	at, end := u.Number, u.Number+uint64(u.Size)
	if before, ok := r.before(u); ok {
		at = max(at, before.Number+uint64(before.Size))
	}
	var gaps [][2]uint64
	r.held.AscendGreaterOrEqual(u, func(other *Unit) bool {
		if other.Number >= end {
			return false
		}
		if other.Number > at {
			gaps = append(gaps, [2]uint64{at, other.Number})
		}
		at = max(at, other.Number+uint64(other.Size))
		return true
	})
	if at < end {
		gaps = append(gaps, [2]uint64{at, end})
	}
	for _, g := range gaps {
		part := u
		if g != [2]uint64{u.Number, end} {
			part = u.part(g[0], g[1])
		}
		r.hold(part)
	}
	return len(gaps) > 0
}

// before is the last part that begins no later than u.
func (r *Receiver) before(u *Unit) (found *Unit, ok bool) {
	r.held.DescendLessOrEqual(u, func(other *Unit) bool {
		found, ok = other, true
		return false
	})
	return found, ok
}

func (r *Receiver) hold(u *Unit) {
	if before, ok := r.before(u); ok && before.Size < small && before.Number+uint64(before.Size) == u.Number {
		u = join(before, u)
	}
	if after, ok := r.held.Get(&Unit{Number: u.Number + uint64(u.Size)}); ok && after.Size < small && u.Size < small {
		r.held.Delete(after)
		u = join(u, after)
	}
	r.held.ReplaceOrInsert(u)
}

func join(a, b *Unit) *Unit {
	return &Unit{Number: a.Number, Offset: a.Offset, Size: a.Size + b.Size, Buf: slices.Concat(a.Data(), b.Data())}
}

// deliver hands on a unit that is in order.
func (r *Receiver) deliver(u *Unit, now time.Time) error {
	if u.Offset != r.offset {
		return violation(fmt.Sprintf("unit %d is at %d, not at %d", u.Number, u.Offset, r.offset))
	}
	r.next += r.o.Numbering.span(u.Size)
	r.offset += uint64(u.Size)
	if r.discard || u.Size == 0 {
		r.free(u.Buf)
		if r.discard {
			r.Consume(u.Size, now)
		}
		return nil
	}
	r.ready.push(*u)
	return nil
}

// advance hands on what is in order now.
func (r *Receiver) advance(now time.Time) error {
	for r.held.Len() > 0 {
		u, _ := r.held.Min()
		if u.Number != r.next {
			break
		}
		r.held.DeleteMin()
		if err := r.deliver(u, now); err != nil {
			return err
		}
	}
	if r.end == nil || r.ended || r.next != r.end.Unit {
		return nil
	}
	if r.offset != r.end.Offset {
		return violation(fmt.Sprintf("its stream ends at %d, not at %d", r.offset, r.end.Offset))
	}
	r.ended, r.ackDue = true, true
	r.next++
	return nil
}

// TakeEnd takes the end of the stream. It reports whether that was known before.
func (r *Receiver) TakeEnd(e End, now time.Time) (again bool, err error) {
	if r.end != nil {
		if *r.end != e {
			return true, violation("its stream has two ends")
		}
		return true, nil
	}
	last, held := r.held.Max()
	switch {
	case e.Unit < r.next || e.Offset < r.offset, held && last.Number+r.o.Numbering.span(last.Size) > e.Unit,
		r.o.Numbering == ByUnit && e.Unit > r.next+uint64(r.o.Ahead), r.o.Numbering == ByByte && (e.Unit != e.Offset || e.Unit > r.limit):
		return false, violation("its stream ends before what came of it")
	}
	r.end = &e
	return false, r.advance(now)
}

// Ack is what the other side should know: all numbers before next arrived, and the stream may reach limit.
func (r *Receiver) Ack() (next, limit uint64) { return r.next, r.limit }

// AckDue reports once that the other side should be told at once: it may send more, or the stream is at its end.
func (r *Receiver) AckDue() bool {
	due := r.ackDue
	r.ackDue = false
	return due
}

// Offset is how many bytes of the stream are in order.
func (r *Receiver) Offset() uint64 { return r.offset }

// Ended reports whether all of the stream is in order, up to its end.
func (r *Receiver) Ended() bool { return r.ended }

// Readable reports whether there is something to read, be it the end.
func (r *Receiver) Readable() bool { return r.ready.len() > 0 || r.ended }

// Read reads what is in order.
func (r *Receiver) Read(p []byte, now time.Time) int {
	n := 0
	for n < len(p) && r.ready.len() > 0 {
		front := r.ready.at(0)
		m := copy(p[n:], front.Data())
		n += m
		if front.Head += m; front.Head == len(front.Buf) {
			r.free(r.ready.pop().Buf)
		}
	}
	if n > 0 {
		r.Consume(n, now)
	}
	return n
}

// Pop gives the next part of the stream with its buffer. The caller says with [Receiver.Consume] when it was read.
func (r *Receiver) Pop() (Unit, bool) {
	if r.ready.len() == 0 {
		return Unit{}, false
	}
	return r.ready.pop(), true
}

// Discard throws away what is there and what comes: nobody reads any more.
func (r *Receiver) Discard(now time.Time) {
	r.discard = true
	for r.ready.len() > 0 {
		u := r.ready.pop()
		r.Consume(len(u.Data()), now)
		r.free(u.Buf)
	}
}

// Discards reports whether [Receiver.Discard] was called.
func (r *Receiver) Discards() bool { return r.discard }

// Consume says that so many bytes were read, and lets the other side send more.
func (r *Receiver) Consume(n int, now time.Time) {
	r.consumed += uint64(n)
	if r.consumed+uint64(r.window) < r.limit+uint64(r.window)/4 {
		return
	}
	r.widen(now)
	r.limit = r.consumed + uint64(r.window)
	r.ackDue = true
}

// widen doubles the window where a quarter of it was used up within half a round trip: it may be what limits the rate.
func (r *Receiver) widen(now time.Time) {
	passed := now.Sub(r.widened)
	r.widened = now
	rtt := time.Millisecond
	if r.o.RTT != nil {
		rtt = max(rtt, r.o.RTT())
	}
	more := min(r.window, r.o.Widest-r.window)
	if more <= 0 || passed > rtt/2 || r.o.Reserve != nil && !r.o.Reserve(int64(more)) {
		return
	}
	r.window += more
}

func (r *Receiver) free(b []byte) {
	if r.o.Free != nil {
		r.o.Free(b)
	}
}
