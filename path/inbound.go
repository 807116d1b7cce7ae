package path

import "iter"

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
