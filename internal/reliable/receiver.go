package reliable

import (
	"fmt"
	"slices"
	"time"

	"github.com/google/btree"
)

// ReceiverOptions are the limits of a receiver.
type ReceiverOptions struct {
	Numbering Numbering
	Window    int // initial window: bytes that may be unread or out of order
	Widest    int // maximum window
	Ahead     int // units that may be held out of order
	// RTT is the longest round trip. Reserve asks for memory before the window grows. Each may be nil.
	RTT     func() time.Duration
	Reserve func(more int64) bool
	// Free takes a buffer back; nil leaves it to the garbage collector.
	Free func([]byte)
}

// Receiver is the receiving half of a stream. Calls must not overlap.
type Receiver struct {
	o        ReceiverOptions
	held     *btree.BTreeG[*Unit] // out of order, without overlaps
	next     uint64               // first number that is not in order yet; the end counts as one
	offset   uint64               // bytes of the stream in order
	consumed uint64               // bytes read
	limit    uint64               // as announced to the other side
	window   int
	widened  time.Time
	ready    fifo
	more     bool // of the newest unit that is in order
	discard  bool
	end      *End
	ended    bool
	ackDue   bool
}

func NewReceiver(o ReceiverOptions) *Receiver {
	return &Receiver{o: o, limit: uint64(o.Window), window: o.Window,
		held: btree.NewG(16, func(a, b *Unit) bool { return a.Number < b.Number })}
}

// Check checks a unit against the limits and the end of the stream.
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

// Has reports whether the whole unit arrived before.
func (r *Receiver) Has(u *Unit) bool {
	if r.o.Numbering == ByUnit {
		return u.Number < r.next || r.held.Has(u)
	}
	return u.Number+uint64(u.Size) <= r.next
}

// Take takes a received unit with its buffer, and reports whether any of it is new. On an error, the other side violated the
// protocol, and the stream is unusable.
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
		early := u // only units out of order need the heap
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
	if r.held.Len() > 2*(r.o.Ahead+r.window/small) { // one per gap, and those too large to be merged
		return false, violation(fmt.Sprintf("%d parts out of order", r.held.Len()))
	}
	return fresh, r.advance(now)
}

// unread returns the unit without the part that is already in order, for [ByByte].
func (r *Receiver) unread(u *Unit) *Unit {
	if r.o.Numbering == ByUnit || u.Number >= r.next {
		return u
	}
	return u.part(r.next, u.Number+uint64(u.Size))
}

// small is the maximum size of a part that is merged with its neighbours, to limit the memory overhead of tiny parts.
const small = 1 << 10

// insert keeps the parts of a unit that are new. Parts never overlap, so the window limits their total.
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

// before returns the last part that begins at or before u.
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

// deliver makes a unit readable that is in order.
func (r *Receiver) deliver(u *Unit, now time.Time) error {
	if u.Offset != r.offset {
		return violation(fmt.Sprintf("unit %d is at %d, not at %d", u.Number, u.Offset, r.offset))
	}
	r.next += r.o.Numbering.span(u.Size)
	r.offset += uint64(u.Size)
	r.more = u.More
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

// advance delivers the held units that are in order now.
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
	r.ended, r.ackDue, r.more = true, true, false
	r.next++
	return nil
}

// TakeEnd takes the end of the stream, and reports whether it was known.
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

// Ack returns the acknowledgement to send: all numbers before next arrived, and the stream may reach limit.
func (r *Receiver) Ack() (next, limit uint64) { return r.next, r.limit }

// AckDue reports, once, that an acknowledgement is urgent: the window grew enough, or the stream is complete.
func (r *Receiver) AckDue() bool {
	due := r.ackDue
	r.ackDue = false
	return due
}

// Offset returns the number of bytes in order.
func (r *Receiver) Offset() uint64 { return r.offset }

// Ended reports whether the whole stream is in order.
func (r *Receiver) Ended() bool { return r.ended }

// Readable reports whether there is data or the end to read.
func (r *Receiver) Readable() bool { return r.ready.len() > 0 || r.ended }

// Torn reports whether what is ready is no more than some units and ends within what was written at once.
func (r *Receiver) Torn(units int) bool { return r.more && r.ready.len() <= units }

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

// Pop returns the next part of the stream with its buffer. After reading it the caller calls [Receiver.Consume].
func (r *Receiver) Pop() (Unit, bool) {
	if r.ready.len() == 0 {
		return Unit{}, false
	}
	return r.ready.pop(), true
}

// Discard drops the data that is there and all that will come, as nobody reads.
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

// Consume records that n bytes were read, and extends the limit of the other side.
func (r *Receiver) Consume(n int, now time.Time) {
	r.consumed += uint64(n)
	if r.consumed+uint64(r.window) < r.limit+uint64(r.window)/4 {
		return
	}
	r.widen(now)
	r.limit = r.consumed + uint64(r.window)
	r.ackDue = true
}

// widen doubles the window if a quarter of it was used within half a round trip, as it may then limit the rate.
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
