package reliable

import (
	"fmt"
	"sort"
	"time"
)

// ByteSenderOptions are the limits of a [ByteSender].
type ByteSenderOptions struct {
	Buffer int    // bytes that may be written and not acknowledged
	Least  int    // the part of Buffer that is not taken from Memory; all of it if zero
	Unsent int    // bytes that may be written and not sent
	Credit uint64 // offset that the stream may reach before the first acknowledgement
	Parts  int    // parts that may be sent and not acknowledged
	Memory *Loan  // may be nil
}

// ByteSender is the sending half of a stream whose parts have any size. Lost bytes may go out again in other parts. The end of
// the stream counts as one more byte. Calls must not overlap.
type ByteSender struct {
	o           ByteSenderOptions
	buffer      ring
	room        int    // the part of Buffer that may be used
	acked       uint64 // all before it arrived
	head, tail  uint64 // sent once, and written
	limit       uint64
	there, lost spans // behind acked: what arrived, and what must go out again
	parts       int
	closed      bool
}

func NewByteSender(o ByteSenderOptions) *ByteSender {
	if o.Least == 0 {
		o.Least = o.Buffer
	}
	return &ByteSender{o: o, limit: o.Credit, room: o.Least}
}

// free returns how many bytes may be written now without more memory.
func (s *ByteSender) free() int {
	return max(0, min(s.room-s.unacked(), s.unsent()))
}

func (s *ByteSender) unacked() int { return int(s.tail - min(s.acked, s.tail)) }

// unsent is how many bytes may be written before some are sent.
func (s *ByteSender) unsent() int { return s.o.Unsent - int(s.tail-min(s.head, s.tail)) }

// Room takes memory to write so many bytes, step by step, and returns how many of them may be written now.
func (s *ByteSender) Room(bytes int) int {
	for bytes = min(bytes, s.unsent()); s.room < s.o.Buffer && s.room-s.unacked() < bytes; {
		more := min(s.room, s.o.Buffer-s.room)
		if !s.o.Memory.Take(int64(more)) {
			break
		}
		s.room += more
	}
	return min(bytes, s.free())
}

// Write writes as much of p as fits.
func (s *ByteSender) Write(p []byte) int {
	if s.closed {
		return 0
	}
	if p = p[:s.Room(len(p))]; len(p) == 0 {
		return 0
	}
	kept := Span{min(s.acked, s.tail), s.tail}
	s.buffer.grow(kept.Size()+len(p), s.o.Buffer, kept)
	s.buffer.put(s.tail, p)
	s.tail += uint64(len(p))
	return len(p)
}

// Written returns how many bytes were written.
func (s *ByteSender) Written() uint64 { return s.tail }

// Close ends writing.
func (s *ByteSender) Close() { s.closed = true }

func (s *ByteSender) Closed() bool { return s.closed }

// Waiting returns how many bytes may be sent now, and whether the end may be.
func (s *ByteSender) Waiting() (bytes int, end bool) {
	if s.parts >= s.o.Parts {
		return 0, false
	}
	for _, l := range s.lost {
		if end = end || s.closed && l.To > s.tail; end {
			l.To = s.tail
		}
		bytes += l.Size()
	}
	bytes += int(min(s.tail, max(s.limit, s.head)) - min(s.head, s.tail))
	return bytes, end || s.closed && s.head == s.tail
}

// Blocked reports whether only the limit of the other side keeps written bytes from being sent.
func (s *ByteSender) Blocked() bool { return s.head < s.tail && s.head >= s.limit && len(s.lost) == 0 }

// Next returns the next part to send with at most most bytes, lost ones first. The end has a part of its own.
func (s *ByteSender) Next(most int) (p Span, ok bool) {
	if s.parts >= s.o.Parts || most < 0 {
		return p, false
	}
	if len(s.lost) > 0 {
		p = s.lost[0]
		if !s.IsEnd(p) {
			p.To = min(p.To, p.From+uint64(most), s.tail)
		}
		s.lost.remove(p)
		return p, p.From < p.To
	}
	if s.closed && s.head == s.tail {
		s.head++
		return Span{s.tail, s.tail + 1}, true
	}
	to := min(s.tail, s.head+uint64(most), max(s.limit, s.head))
	p = Span{s.head, max(to, s.head)}
	if p.From >= p.To {
		return p, false
	}
	s.head = to
	return p, true
}

// IsEnd reports whether a part is the end of the stream, whose offset is the stream's length.
func (s *ByteSender) IsEnd(p Span) bool { return s.closed && p.From == s.tail }

// Get copies bytes of a part that is not acknowledged.
func (s *ByteSender) Get(at uint64, b []byte) { s.buffer.get(at, b) }

// Acked takes an acknowledgement: all before next arrived, ranges arrived too, and the stream may reach limit.
func (s *ByteSender) Acked(next, limit uint64, ranges []Span) error {
	if next > s.head {
		return violation(fmt.Sprintf("it has %d bytes, of which %d were sent", next, s.head))
	}
	for _, r := range ranges {
		if r.From >= r.To || r.To > s.head {
			return violation(fmt.Sprintf("it has bytes %d to %d, of which %d were sent", r.From, r.To, s.head))
		}
	}
	s.limit = max(s.limit, limit)
	if next > s.acked {
		s.acked = next
		s.there.remove(Span{0, next})
		s.lost.remove(Span{0, next})
	}
	for _, r := range ranges {
		s.arrive(r)
	}
	if len(s.there) > 2*s.o.Parts {
		return violation(fmt.Sprintf("it has %d pieces", len(s.there)))
	}
	return nil
}

func (s *ByteSender) arrive(p Span) {
	p.From = max(p.From, s.acked)
	s.there.add(p)
	s.lost.remove(p)
}

func (s *ByteSender) arrived(p Span) bool {
	return p.To <= s.acked || s.there.holds(Span{max(p.From, s.acked), p.To})
}

// lose queues what did not arrive of a part.
func (s *ByteSender) lose(p Span) {
	if p.From = max(p.From, s.acked); p.From < p.To {
		s.there.missing(p, s.lost.add)
	}
}

// Drained reports whether all that was written arrived.
func (s *ByteSender) Drained() bool { return s.acked >= s.tail }

// Proved reports whether all arrived, and the end.
func (s *ByteSender) Proved() bool { return s.closed && s.acked > s.tail }

// Rest releases memory while nothing is under way.
func (s *ByteSender) Rest() {
	if !s.Drained() {
		return
	}
	s.o.Memory.Return(int64(s.room - s.o.Least))
	s.room = s.o.Least
	if len(s.buffer) > smallRing {
		s.buffer, s.there, s.lost = nil, nil, nil
	}
}

// Flight is what one carrier sent and nothing acknowledged yet, in sending order.
type Flight struct {
	s    *ByteSender
	sent []flown
	head int
}

type flown struct {
	Span
	seq uint64
	at  time.Time
}

func (s *ByteSender) NewFlight() *Flight { return &Flight{s: s} }

// Sent records a part, with a number that grows with each part of the carrier.
func (f *Flight) Sent(p Span, seq uint64, at time.Time) {
	if f.head > 64 && f.head*2 > len(f.sent) {
		f.sent, f.head = append(f.sent[:0], f.sent[f.head:]...), 0
	}
	f.sent = append(f.sent, flown{p, seq, at})
	f.s.parts++
}

// Len returns the number of parts.
func (f *Flight) Len() int { return len(f.sent) - f.head }

// When returns when the part with the number went out, unless it is not in flight any more.
func (f *Flight) When(seq uint64) (at time.Time, ok bool) {
	live := f.sent[f.head:]
	i := sort.Search(len(live), func(i int) bool { return live[i].seq >= seq })
	if i == len(live) || live[i].seq != seq {
		return at, false
	}
	return live[i].at, true
}

// Arrived reports that all parts up to the number arrived, because the carrier keeps the order.
func (f *Flight) Arrived(seq uint64) (parts int) {
	for ; f.head < len(f.sent) && f.sent[f.head].seq <= seq; parts++ {
		f.s.arrive(f.sent[f.head].Span)
		f.pop()
	}
	return parts
}

// Retire releases the oldest parts that arrived.
func (f *Flight) Retire() (parts int) {
	for ; f.head < len(f.sent) && f.s.arrived(f.sent[f.head].Span); parts++ {
		f.pop()
	}
	return parts
}

func (f *Flight) pop() {
	f.head++
	f.s.parts--
	if f.head == len(f.sent) {
		f.sent, f.head = f.sent[:0], 0
	}
}

// Lose takes the parts for lost that went out at least three parts before the number, end before the offset, and did not arrive. It
// releases all that arrived, and returns how many bytes are lost.
func (f *Flight) Lose(seq, before uint64) (bytes int) {
	kept, live := f.sent[:0], f.sent[f.head:]
	named := len(live)
	for named > 0 && live[named-1].seq > seq {
		named--
	}
	for i, p := range live {
		switch {
		case f.s.arrived(p.Span):
		case i+3 < named && p.To <= before:
			f.s.lose(p.Span)
			bytes += p.Size()
		default:
			kept = append(kept, p)
			continue
		}
		f.s.parts--
	}
	f.sent, f.head = kept, 0
	return bytes
}

// Fail takes all that did not arrive for lost, and returns how many bytes that were.
func (f *Flight) Fail() (bytes int) {
	for _, p := range f.sent[f.head:] {
		if !f.s.arrived(p.Span) {
			f.s.lose(p.Span)
			bytes += p.Size()
		}
		f.s.parts--
	}
	f.sent, f.head = nil, 0
	return bytes
}
