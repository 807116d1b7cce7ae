package clienthello

import "slices"

// mostSpans is how many pieces that do not touch are kept, so that a stranger's crumbs cost little.
const mostSpans = 256

// Prefix is the start of a byte stream that arrives in pieces, in any order. It keeps [Limit] bytes
// at most. The zero value is empty.
type Prefix struct {
	data []byte
	held []span // sorted, apart from each other
}

type span struct{ from, to int }

// Insert adds piece at offset and reports whether more of the stream's start is known than before. What lies beyond
// the limit is left out, and so is a piece that touches no other where there are too many of them.
func (p *Prefix) Insert(offset uint64, piece []byte) bool {
	if offset >= Limit || len(piece) == 0 {
		return false
	}
	s := span{int(offset), min(int(offset)+len(piece), Limit)}
	// The spans from first on and before last touch the new one.
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

// Bytes is what is known of the stream without a gap from its first byte on.
func (p *Prefix) Bytes() []byte {
	if len(p.held) == 0 || p.held[0].from != 0 {
		return nil
	}
	return p.data[:p.held[0].to]
}
