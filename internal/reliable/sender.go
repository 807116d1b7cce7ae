package reliable

import "fmt"

// SenderOptions are the limits of a sender.
type SenderOptions struct {
	Buffer int    // bytes that may be written and not yet cut
	Credit uint64 // offset that the stream may reach before the first acknowledgement
	Hold   int    // bytes of unacknowledged units, from which on nothing more is cut
	Ahead  int    // unacknowledged units, from which on nothing more is cut
	// Free takes a buffer back; nil leaves it to the garbage collector.
	Free func([]byte)
}

// Sender is the sending half of a stream that is cut into units, which stay whole. Calls must not overlap, with one exception: one goroutine may call [Sender.Put],
// and another one [Sender.Get], during any other call, as they touch separate bytes.
type Sender struct {
	o          SenderOptions
	buffer     ring
	head, tail uint64 // bytes cut and bytes written
	next       uint64 // number of the next unit
	confirmed  uint64 // all numbers before it are acknowledged
	limit      uint64
	held       int // bytes of the buffers of units
	closed     bool
	end        *End
}

func NewSender(o SenderOptions) *Sender {
	return &Sender{o: o, buffer: make(ring, o.Buffer), limit: o.Credit}
}

// Free returns how many bytes may be written now.
func (s *Sender) Free() int { return len(s.buffer) - s.Pending() }

// Pending returns how many bytes were written and not yet cut.
func (s *Sender) Pending() int { return int(s.tail - s.head) }

// Written returns how many bytes were written.
func (s *Sender) Written() uint64 { return s.tail }

// Offset returns how many bytes were cut.
func (s *Sender) Offset() uint64 { return s.head }

// Next returns the number of the next unit.
func (s *Sender) Next() uint64 { return s.next }

// Put copies p to offset at, which must have room. [Sender.Commit] makes it part of the stream.
func (s *Sender) Put(at uint64, p []byte) { s.buffer.put(at, p) }

// Space returns the contiguous free buffer for the next bytes of the stream.
func (s *Sender) Space() []byte {
	at := int(s.tail % uint64(len(s.buffer)))
	return s.buffer[at:min(len(s.buffer), at+s.Free())]
}

// Commit makes the next n bytes in the buffer part of the stream.
func (s *Sender) Commit(n int) { s.tail += uint64(n) }

// Write writes as much of p as fits.
func (s *Sender) Write(p []byte) int {
	n := min(len(p), s.Free())
	s.Put(s.tail, p[:n])
	s.Commit(n)
	return n
}

// Get fills p with written bytes from offset at, which must not be cut yet.
func (s *Sender) Get(at uint64, p []byte) { s.buffer.get(at, p) }

// Ready returns how many bytes may be cut now into at most that many units: written bytes, within the credit of the other
// side and the limits on unacknowledged data.
func (s *Sender) Ready(units int) int {
	if s.held >= s.o.Hold || int(s.next-s.confirmed)+units > s.o.Ahead {
		return 0
	}
	return min(s.Pending(), int(min(s.limit-s.head, 1<<30)))
}

// Cut records that the next bytes were cut into units, up to the number next. The caller passes them to [Outbox.Push].
func (s *Sender) Cut(bytes int, next uint64) {
	s.head += uint64(bytes)
	s.next = next
}

func (s *Sender) keep(u Unit) { s.held += len(u.Buf) }

func (s *Sender) release(u Unit) {
	s.held -= len(u.Buf)
	if s.o.Free != nil {
		s.o.Free(u.Buf)
	}
}

// arrived reports whether the whole unit is acknowledged.
func (s *Sender) arrived(u *Unit) bool { return u.Number < s.confirmed }

// Allow raises the offset that the stream may reach.
func (s *Sender) Allow(limit uint64) { s.limit = max(s.limit, limit) }

// Acked takes an acknowledgement: all numbers before next arrived, and the stream may reach limit. It reports whether that
// confirms more than before; [Outbox.Retire] then releases it.
func (s *Sender) Acked(next, limit uint64) (more bool, err error) {
	sent := s.next
	if s.end != nil {
		sent++
	}
	if next > sent {
		return false, violation(fmt.Sprintf("it has %d units, of which %d were sent", next, sent))
	}
	s.Allow(limit)
	more = next > s.confirmed
	s.confirmed = max(s.confirmed, next)
	return more, nil
}

// Close ends writing.
func (s *Sender) Close() { s.closed = true }

func (s *Sender) Closed() bool { return s.closed }

// Finish sets the end of the stream once it is closed and completely cut. It reports whether it did so now.
func (s *Sender) Finish() bool {
	if !s.closed || s.end != nil || s.Pending() > 0 {
		return false
	}
	s.end = &End{Unit: s.next, Offset: s.head}
	return true
}

// End returns the end of the stream, or nil before [Sender.Finish].
func (s *Sender) End() *End { return s.end }

// Proved reports whether the whole stream and its end are acknowledged.
func (s *Sender) Proved() bool { return s.end != nil && s.confirmed > s.end.Unit }

// Drained reports whether all bytes written so far are acknowledged.
func (s *Sender) Drained() bool { return s.Pending() == 0 && s.confirmed >= s.next }
