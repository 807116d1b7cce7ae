package reliable

import (
	"cmp"
	"fmt"
	"slices"
)

// SenderOptions are the bounds of a sender.
type SenderOptions struct {
	Numbering Numbering
	Buffer    int    // bytes that may be written and not be cut yet
	Credit    uint64 // how far the stream may go before the other side said anything
	Hold      int    // bytes in buffers of units that are not confirmed, before nothing more is cut
	Ahead     int    // units that are not confirmed, before nothing more is cut
	// Free takes back the buffer of a unit that is not needed any more; nil leaves it to the garbage collector.
	Free func([]byte)
}

// Sender is the half of a stream that is written.
//
// One goroutine may use [Sender.Put] and another one [Sender.Get] at the same time as any other method: they touch only
// bytes that the other does not. All other calls must not overlap.
type Sender struct {
	o          SenderOptions
	buffer     []byte
	head, tail uint64 // bytes that were cut, and that were written
	next       uint64 // the number of the next unit
	confirmed  uint64 // numbers before this one arrived
	limit      uint64
	held       int // bytes in the buffers of units
	units      int // how many units these are
	closed     bool
	end        *End
	again      []Unit // of carriers that are lost, by number
}

// NewSender makes the sender of an empty stream.
func NewSender(o SenderOptions) *Sender {
	return &Sender{o: o, buffer: make([]byte, o.Buffer), limit: o.Credit}
}

// Free is how many bytes may be written now.
func (s *Sender) Free() int { return len(s.buffer) - s.Pending() }

// Pending is how many bytes were written and not cut.
func (s *Sender) Pending() int { return int(s.tail - s.head) }

// Written is how many bytes were written in all.
func (s *Sender) Written() uint64 { return s.tail }

// Offset is how many bytes of the stream were cut.
func (s *Sender) Offset() uint64 { return s.head }

// Next is the number of the next unit.
func (s *Sender) Next() uint64 { return s.next }

// Put copies p behind the place at, for which there is room; [Sender.Commit] makes it a part of the stream.
func (s *Sender) Put(at uint64, p []byte) {
	i := int(at % uint64(len(s.buffer)))
	n := copy(s.buffer[i:], p)
	copy(s.buffer, p[n:])
}

// Space is where the next bytes of the stream go, as far as that is in one piece.
func (s *Sender) Space() []byte {
	at := int(s.tail % uint64(len(s.buffer)))
	return s.buffer[at:min(len(s.buffer), at+s.Free())]
}

// Commit makes n bytes, which were put behind the last ones, a part of the stream.
func (s *Sender) Commit(n int) { s.tail += uint64(n) }

// Write writes as much of p as there is room for.
func (s *Sender) Write(p []byte) int {
	n := min(len(p), s.Free())
	s.Put(s.tail, p[:n])
	s.Commit(n)
	return n
}

// Get fills p with what was written from the place at on, and not cut yet.
func (s *Sender) Get(at uint64, p []byte) {
	i := int(at % uint64(len(s.buffer)))
	n := copy(p, s.buffer[i:])
	copy(p[n:], s.buffer)
}

// Ready is how many bytes may be cut now into at most so many units: what is written, as far as the other side's credit
// and the bounds of what is not confirmed allow.
func (s *Sender) Ready(units int) int {
	out := s.units
	if s.o.Numbering == ByUnit {
		out = int(s.next - s.confirmed) // a unit may be in several buffers, or in none any more
	}
	if s.held >= s.o.Hold || out+units > s.o.Ahead {
		return 0
	}
	return min(s.Pending(), int(min(s.limit-s.head, 1<<30)))
}

// Cut notes that the next bytes were cut into units, up to the number next. [Outbox.Push] keeps them.
func (s *Sender) Cut(bytes int, next uint64) {
	s.head += uint64(bytes)
	s.next = next
}

// Fill gives the carrier of o its next unit, of at most most bytes: what was lost with another carrier goes first. It reports
// false where nothing may be sent. The unit keeps its buffer, which the caller must not change.
func (s *Sender) Fill(o *Outbox, most int) (Unit, bool) {
	for len(s.again) > 0 && most > 0 {
		u := s.again[0]
		end := u.Number + s.o.Numbering.span(u.Size)
		switch {
		case end <= s.confirmed:
			s.again = s.again[1:]
			s.release(u)
			continue
		case s.o.Numbering == ByUnit && u.Size > most:
			return Unit{}, false
		case s.o.Numbering == ByUnit || u.Number >= s.confirmed && u.Size <= most:
			s.again = s.again[1:]
		default: // a part of it: the rest stays
			from := max(u.Number, s.confirmed)
			to := min(end, from+uint64(most))
			first := u.part(from, to)
			s.again = s.again[1:]
			s.keep(*first)
			if to < end {
				rest := u.part(to, end)
				s.keep(*rest)
				s.again = slices.Insert(s.again, 0, *rest)
			}
			s.release(u)
			u = *first
		}
		return o.give(u), true
	}
	n := min(s.Ready(1), most)
	if n <= 0 {
		return Unit{}, false
	}
	u := Unit{Number: s.next, Offset: s.head, Size: n, Buf: make([]byte, n)}
	s.Get(s.head, u.Buf)
	s.Cut(n, s.next+s.o.Numbering.span(n))
	s.keep(u)
	return o.give(u), true
}

// recover takes units that may not have arrived, to be sent by another carrier.
func (s *Sender) recover(units ...Unit) {
	for _, u := range units {
		u.Seq = 0
		at, _ := slices.BinarySearchFunc(s.again, u, func(a, b Unit) int { return cmp.Compare(a.Number, b.Number) })
		s.again = slices.Insert(s.again, at, u)
	}
}

func (s *Sender) keep(u Unit) {
	s.held += len(u.Buf)
	s.units++
}

func (s *Sender) release(u Unit) {
	s.held -= len(u.Buf)
	s.units--
	if s.o.Free != nil {
		s.o.Free(u.Buf)
	}
}

// arrived reports whether the other side has all of a unit.
func (s *Sender) arrived(u *Unit) bool {
	return u.Number+s.o.Numbering.span(u.Size) <= s.confirmed
}

// Allow lets the stream go up to a place, as the other side said.
func (s *Sender) Allow(limit uint64) { s.limit = max(s.limit, limit) }

// Acked takes what the other side says: all numbers before next arrived, and the stream may reach limit. It reports whether
// more has arrived than was known; [Outbox.Retire] then lets go of it.
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

// Close says that nothing more is written.
func (s *Sender) Close() { s.closed = true }

// Closed reports whether that was said.
func (s *Sender) Closed() bool { return s.closed }

// Finish sets the end of the stream once it is closed and all of it is cut. It reports whether that happened now.
func (s *Sender) Finish() bool {
	if !s.closed || s.end != nil || s.Pending() > 0 {
		return false
	}
	s.end = &End{Unit: s.next, Offset: s.head}
	return true
}

// End is the end of the stream, nil before [Sender.Finish] set it.
func (s *Sender) End() *End { return s.end }

// Proved reports whether the other side has all of the stream, and its end.
func (s *Sender) Proved() bool { return s.end != nil && s.confirmed > s.end.Unit }

// Drained reports whether the other side has all that was written so far.
func (s *Sender) Drained() bool { return s.Pending() == 0 && s.confirmed >= s.next }
