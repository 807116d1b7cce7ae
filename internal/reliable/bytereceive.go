package reliable

import (
	"fmt"
	"time"
)

// ByteReceiverOptions are the limits of a [ByteReceiver].
type ByteReceiverOptions struct {
	Window int // initial window: bytes that may be unread or out of order
	Widest int // maximum window
	Pieces int // pieces that may be out of order
	// RTT is the longest round trip. Memory is for a window beyond the initial one. Each may be nil.
	RTT    func() time.Duration
	Memory *Loan
}

// ByteReceiver is the receiving half of a stream of a [ByteSender]. Calls must not overlap.
type ByteReceiver struct {
	o       ByteReceiverOptions
	credit  credit
	buffer  ring
	held    spans  // out of order
	next    uint64 // all before it arrived
	end     uint64 // if hasEnd
	hasEnd  bool
	ended   bool
	discard bool
	ackDue  bool
}

func NewByteReceiver(o ByteReceiverOptions) *ByteReceiver {
	return &ByteReceiver{o: o, credit: newCredit(o.Window, o.Widest, o.RTT, o.Memory)}
}

// Take takes bytes of the stream, and reports whether any of them are new. It keeps its own copy. Of bytes that come more than
// once the first count. On an error, the other side violated the protocol, and the stream is unusable.
func (r *ByteReceiver) Take(at uint64, p []byte, now time.Time) (fresh bool, err error) {
	part := Span{at, at + uint64(len(p))}
	switch {
	case part.To < part.From || part.To > r.credit.limit:
		return false, violation("more than it may send")
	case r.hasEnd && part.To > r.end:
		return false, violation("bytes behind the end")
	case part.To <= r.next:
		return false, nil
	}
	p = p[max(part.From, r.next)-part.From:]
	part.From = max(part.From, r.next)
	fresh = r.store(part, p)
	if part.From > r.next && len(r.held) > r.o.Pieces {
		return false, violation(fmt.Sprintf("%d pieces out of order", len(r.held)))
	}
	r.advance(now)
	return fresh, nil
}

// store keeps what is new of a part.
func (r *ByteReceiver) store(part Span, p []byte) (fresh bool) {
	if !r.discard {
		kept := Span{r.credit.consumed, r.next}
		if n := len(r.held); n > 0 {
			kept.To = r.held[n-1].To
		}
		r.buffer.grow(int(max(part.To, kept.To)-kept.From), r.credit.widest, kept)
	}
	if part.From == r.next && (len(r.held) == 0 || r.held[0].From >= part.To) {
		r.keep(part, p) // in order, as most parts are
		r.next = part.To
		return true
	}
	r.held.missing(part, func(gap Span) {
		r.keep(gap, p[gap.From-part.From:gap.To-part.From])
		fresh = true
	})
	if fresh {
		r.held.add(part)
	}
	return fresh
}

func (r *ByteReceiver) keep(part Span, p []byte) {
	if !r.discard {
		r.buffer.put(part.From, p)
	}
}

// advance moves on over what is in order now.
func (r *ByteReceiver) advance(now time.Time) {
	if len(r.held) > 0 && r.held[0].From <= r.next {
		r.next = max(r.next, r.held[0].To)
		r.held.remove(Span{0, r.next})
	}
	if r.hasEnd && !r.ended && r.next == r.end {
		r.ended, r.ackDue = true, true
	}
	if n := r.next - r.credit.consumed; r.discard && n > 0 {
		r.ackDue = r.credit.consume(int(n), now) || r.ackDue
	}
}

// TakeEnd takes the length of the stream, and reports whether it was known.
func (r *ByteReceiver) TakeEnd(at uint64, now time.Time) (again bool, err error) {
	if r.hasEnd {
		if at != r.end {
			return true, violation("its stream has two ends")
		}
		return true, nil
	}
	if n := len(r.held); at < r.next || at > r.credit.limit || n > 0 && r.held[n-1].To > at {
		return false, violation("its stream ends before what came of it, or beyond what it may send")
	}
	r.hasEnd, r.end = true, at
	r.advance(now)
	return false, nil
}

// Ack returns the acknowledgement to send: all before next arrived, where the end counts as one byte, and the stream may reach
// limit.
func (r *ByteReceiver) Ack() (next, limit uint64) {
	if r.ended {
		return r.next + 1, r.credit.limit
	}
	return r.next, r.credit.limit
}

// Ranges returns the first pieces that arrived out of order.
func (r *ByteReceiver) Ranges(most int) []Span { return r.held[:min(most, len(r.held))] }

// AckDue reports, once, that an acknowledgement is urgent: the window grew enough, or the stream is complete.
func (r *ByteReceiver) AckDue() bool {
	due := r.ackDue
	r.ackDue = false
	return due
}

// Ended reports whether the whole stream arrived.
func (r *ByteReceiver) Ended() bool { return r.ended }

// Buffered returns the number of bytes that can be read.
func (r *ByteReceiver) Buffered() int { return int(r.next - r.credit.consumed) }

func (r *ByteReceiver) Read(p []byte, now time.Time) int {
	n := min(len(p), r.Buffered())
	if n == 0 {
		return 0
	}
	r.buffer.get(r.credit.consumed, p[:n])
	r.ackDue = r.credit.consume(n, now) || r.ackDue
	return n
}

// Discard drops what is there and all that will come, as nobody reads.
func (r *ByteReceiver) Discard(now time.Time) {
	r.discard = true
	r.advance(now)
	r.buffer = nil
}

// Rest releases memory while nothing waits.
func (r *ByteReceiver) Rest() {
	if r.Buffered() == 0 && len(r.held) == 0 && len(r.buffer) > smallRing {
		r.buffer, r.held = nil, nil
	}
}
