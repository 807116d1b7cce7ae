package reliable

import (
	"fmt"
	"time"
)

// ReceiverOptions are the limits of a receiver.
type ReceiverOptions struct {
	Window int // initial window: bytes that may be unread or out of order
	Widest int // maximum window
	Ahead  int // units that may be held out of order
	// RTT is the longest round trip. Memory is for a window beyond the initial one. Each may be nil.
	RTT    func() time.Duration
	Memory *Loan
	// Free takes a buffer back; nil leaves it to the garbage collector.
	Free func([]byte)
}

// Receiver is the receiving half of a stream of a [Sender]. Calls must not overlap.
type Receiver struct {
	credit
	o       ReceiverOptions
	held    map[uint64]Unit // out of order
	next    uint64          // number of the first unit that is not in order yet; the end counts as one
	offset  uint64          // bytes of the stream in order
	ready   fifo
	more    bool // of the newest unit that is in order
	discard bool
	end     *End
	ended   bool
	ackDue  bool
}

func NewReceiver(o ReceiverOptions) *Receiver {
	return &Receiver{o: o, credit: newCredit(o.Window, o.Widest, o.RTT, o.Memory), held: map[uint64]Unit{}}
}

// Check checks a unit against the limits and the end of the stream.
func (r *Receiver) Check(u *Unit) error {
	switch {
	case u.Number >= r.next+uint64(r.o.Ahead):
		return violation(fmt.Sprintf("unit %d, while unit %d is not there", u.Number, r.next))
	case u.Size < 0 || u.Offset+uint64(u.Size) > r.limit || u.Offset > r.limit:
		return violation("more than it may send")
	case r.end != nil && u.Number >= r.end.Unit:
		return violation("a segment behind the end")
	}
	return nil
}

// Has reports whether the unit arrived before.
func (r *Receiver) Has(u *Unit) bool {
	_, held := r.held[u.Number]
	return held || u.Number < r.next
}

// Take takes a received unit with its buffer, and reports whether it is new. On an error, the other side violated the
// protocol, and the stream is unusable.
func (r *Receiver) Take(u Unit, now time.Time) (fresh bool, err error) {
	if err := r.Check(&u); err != nil {
		return false, err
	}
	switch {
	case r.Has(&u):
		r.free(u.Buf)
		return false, nil
	case u.Number > r.next:
		r.held[u.Number] = u
		return true, nil
	}
	if err := r.deliver(&u, now); err != nil {
		return false, err
	}
	return true, r.advance(now)
}

// deliver makes a unit readable that is in order.
func (r *Receiver) deliver(u *Unit, now time.Time) error {
	if u.Offset != r.offset {
		return violation(fmt.Sprintf("unit %d is at %d, not at %d", u.Number, u.Offset, r.offset))
	}
	r.next++
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
	for {
		u, ok := r.held[r.next]
		if !ok {
			break
		}
		delete(r.held, r.next)
		if err := r.deliver(&u, now); err != nil {
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
	early := e.Unit < r.next || e.Offset < r.offset || e.Unit > r.next+uint64(r.o.Ahead)
	for number := range r.held {
		early = early || number >= e.Unit
	}
	if early {
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
func (r *Receiver) Consume(n int, now time.Time) { r.ackDue = r.consume(n, now) || r.ackDue }

func (r *Receiver) free(b []byte) {
	if r.o.Free != nil {
		r.o.Free(b)
	}
}
