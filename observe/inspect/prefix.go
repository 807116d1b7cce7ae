package inspect

import "slices"

// prefixLimit is how many bytes from the start of a stream are kept, in bytes. ClientHellos with post-quantum key
// shares take about 2,000.
const prefixLimit = 16 << 10

// prefix is the start of a byte stream that arrives in pieces, in any order. The zero value is empty.
type prefix struct {
	data []byte
	held []span // sorted, apart from each other
}

type span struct{ from, to int }

// insert adds piece at offset and reports whether more of the stream's start is known than before. What lies beyond
// the limit is left out.
func (p *prefix) insert(offset uint64, piece []byte) bool {
	if offset >= prefixLimit || len(piece) == 0 {
		return false
	}
	s := span{int(offset), min(int(offset)+len(piece), prefixLimit)}
	if s.to > len(p.data) {
		p.data = slices.Grow(p.data, s.to-len(p.data))[:s.to]
	}
	copy(p.data[s.from:s.to], piece)
	before := len(p.bytes())
	var kept []span
	for _, h := range p.held {
		if h.to < s.from || s.to < h.from {
			kept = append(kept, h)
		} else {
			s = span{min(s.from, h.from), max(s.to, h.to)}
		}
	}
	at, _ := slices.BinarySearchFunc(kept, s, func(a, b span) int { return a.from - b.from })
	p.held = slices.Insert(kept, at, s)
	return len(p.bytes()) > before
}

// bytes is what is known of the stream without a gap from its first byte on.
func (p *prefix) bytes() []byte {
	if len(p.held) == 0 || p.held[0].from != 0 {
		return nil
	}
	return p.data[:p.held[0].to]
}
