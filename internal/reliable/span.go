package reliable

import (
	"slices"
	"sort"
)

// Span is the part of a stream from one offset up to another.
type Span struct{ From, To uint64 }

// Size returns the number of bytes.
func (s Span) Size() int { return int(s.To - s.From) }

// spans are in order, and neither overlap nor touch.
type spans []Span

// from returns the index of the first span that ends after the offset.
func (s spans) from(at uint64) int {
	return sort.Search(len(s), func(i int) bool { return s[i].To > at })
}

func (s *spans) add(n Span) {
	if n.From >= n.To {
		return
	}
	i := sort.Search(len(*s), func(i int) bool { return (*s)[i].To >= n.From })
	j := i
	for ; j < len(*s) && (*s)[j].From <= n.To; j++ {
		n.From, n.To = min(n.From, (*s)[j].From), max(n.To, (*s)[j].To)
	}
	if j == i+1 {
		(*s)[i] = n
		return
	}
	*s = slices.Replace(*s, i, j, n)
}

func (s *spans) remove(n Span) {
	if n.From >= n.To {
		return
	}
	i := s.from(n.From)
	j := i
	var rest [2]Span
	left := rest[:0]
	for ; j < len(*s) && (*s)[j].From < n.To; j++ {
		if old := (*s)[j]; old.From < n.From {
			left = append(left, Span{old.From, n.From})
		}
		if old := (*s)[j]; old.To > n.To {
			left = append(left, Span{n.To, old.To})
		}
	}
	if i < j {
		*s = slices.Replace(*s, i, j, left...)
	}
}

// holds reports whether all of n is there.
func (s spans) holds(n Span) bool {
	i := s.from(n.From)
	return n.From >= n.To || i < len(s) && s[i].From <= n.From && s[i].To >= n.To
}

// missing calls f for each part of n that is not there.
func (s spans) missing(n Span, f func(Span)) {
	at := n.From
	for _, have := range s[s.from(n.From):] {
		if have.From >= n.To {
			break
		}
		if have.From > at {
			f(Span{at, have.From})
		}
		at = have.To
	}
	if at < n.To {
		f(Span{at, n.To})
	}
}

// ring holds the bytes of a stream between two offsets that are at most its size apart.
type ring []byte

// smallRing is the first size of a ring, and the size that it returns to when it is empty.
const smallRing = 16 << 10

func (r ring) put(at uint64, p []byte) {
	i := int(at % uint64(len(r)))
	n := copy(r[i:], p)
	copy(r, p[n:])
}

func (r ring) get(at uint64, p []byte) {
	i := int(at % uint64(len(r)))
	n := copy(p, r[i:])
	copy(p[n:], r)
}

// grow makes room for need bytes, and at most for most, and keeps those of kept.
func (r *ring) grow(need, most int, kept Span) {
	if need <= len(*r) {
		return
	}
	size := max(len(*r), smallRing)
	for size < need {
		size *= 2
	}
	larger := make(ring, min(size, most))
	for at := kept.From; at < kept.To; {
		i := int(at % uint64(len(*r)))
		part := (*r)[i:min(len(*r), i+int(kept.To-at))]
		larger.put(at, part)
		at += uint64(len(part))
	}
	*r = larger
}
