package asn

import (
	"encoding/binary"
	"net/netip"
	"slices"
)

// span is a range of addresses with one value. Both ends are of one family.
type span struct {
	first, last netip.Addr
	value       uint32
}

// flatten returns disjoint spans in ascending order. Where spans overlap, the later start wins (the longer prefix); at equal
// starts the shorter range; for equal ranges the later one.
func flatten(spans []span) []span {
	slices.SortStableFunc(spans, func(a, b span) int {
		if c := a.first.Compare(b.first); c != 0 {
			return c
		}
		return b.last.Compare(a.last)
	})
	var f flattener
	for _, s := range spans {
		for len(f.open) > 0 && f.top().last.Less(s.first) {
			f.close()
		}
		if len(f.open) > 0 && f.at.Less(s.first) {
			f.emit(f.at, s.first.Prev(), f.top().value)
		}
		f.at = s.first
		f.open = append(f.open, s)
	}
	for len(f.open) > 0 && f.at.IsValid() {
		f.close()
	}
	return f.out
}

type flattener struct {
	out  []span
	open []span     // spans that contain the sweep position; the last one wins
	at   netip.Addr // everything before it is done
}

func (f *flattener) top() span { return f.open[len(f.open)-1] }

// close ends the winning span. After the last of all addresses, at is zero.
func (f *flattener) close() {
	s := f.top()
	f.open = f.open[:len(f.open)-1]
	if s.last.Less(f.at) {
		return
	}
	f.emit(f.at, s.last, s.value)
	f.at = s.last.Next()
}

// emit adds a span, or extends the previous one.
func (f *flattener) emit(first, last netip.Addr, value uint32) {
	if n := len(f.out); n > 0 && f.out[n-1].value == value && f.out[n-1].last.Next() == first {
		f.out[n-1].last = last
		return
	}
	f.out = append(f.out, span{first, last, value})
}

// records encodes the spans for a part. It omits spans of value 0, which say nothing.
func records(spans []span) (data []byte, n int) {
	for _, s := range spans {
		if s.value == 0 {
			continue
		}
		data = append(data, s.first.AsSlice()...)
		data = append(data, s.last.AsSlice()...)
		data = binary.BigEndian.AppendUint32(data, s.value)
		n++
	}
	return data, n
}
