package clienthello

import "slices"

// mostSpans limits the number of separate pieces, so that many tiny ones cost little memory.
const mostSpans = 256

// Prefix is the start of a byte stream whose pieces arrive in any order, up to [Limit] bytes. The zero value is empty.
type Prefix struct {
	data []byte
	held []span // sorted, apart from each other
}

type span struct{ from, to int }

// Insert adds a piece at an offset. It reports whether the contiguous start of the stream grew. It ignores bytes beyond
// [Limit], and also separate pieces once there are too many.
func (p *Prefix) Insert(offset uint64, piece []byte) bool {
	if offset >= Limit || len(piece) == 0 {
		return false
	}
	s := span{int(offset), min(int(offset)+len(piece), Limit)}
	// The spans in [first, last) touch the new one.
	first, _ := slices.BinarySearchFunc(p.held, s.from, func(h span, at int) int { return h.to - at })
	last := first
	for last < len(p.held) && p.held[last].from <= s.to {
		last++
	}
	if first == last && len(p.held) >= mostSpans && s.from > 0 {
		return false
	}
	if s.to > len(p.data) {
		p.data = slices.Grow(p.data, s.to-len(p.data))[:s.to]
	}
	copy(p.data[s.from:s.to], piece)
	before := len(p.Bytes())
	if first < last {
		s = span{min(s.from, p.held[first].from), max(s.to, p.held[last-1].to)}
	}
	p.held = slices.Replace(p.held, first, last, s)
	return len(p.Bytes()) > before
}

// Bytes returns the contiguous start of the stream.
func (p *Prefix) Bytes() []byte {
	if len(p.held) == 0 || p.held[0].from != 0 {
		return nil
	}
	return p.data[:p.held[0].to]
}
