package path

import (
	"iter"
	"slices"
)

// Datagrams yields the datagrams of one receive, each with its own capacity.
func (in Inbound) Datagrams() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for data := in.Data; len(data) > 0; {
			n := min(in.Size, len(data))
			if !yield(data[:n:n]) {
				return
			}
			data = data[n:]
		}
	}
}

// AppendDatagrams appends the datagrams of all receives.
func AppendDatagrams(to [][]byte, all ...Inbound) [][]byte {
	for _, in := range all {
		to = slices.AppendSeq(to, in.Datagrams())
	}
	return to
}
