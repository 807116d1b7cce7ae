package path

import (
	"fmt"
	"net/netip"
	"sync/atomic"
)

// Stranger remembers who sent something in place of the expected sender, such as a server that answers from another of its
// addresses. It is safe for concurrent use.
type Stranger struct {
	from atomic.Pointer[netip.AddrPort]
}

// Expected reports whether a datagram comes from the expected sender. It remembers the first other one.
func (s *Stranger) Expected(from, sender netip.AddrPort) bool {
	if from == sender {
		return true
	}
	s.from.CompareAndSwap(nil, &from)
	return false
}

// Hint says what to do if the expected sender was not heard. It is empty if nobody else was heard either.
func (s *Stranger) Hint() string {
	from := s.from.Load()
	if from == nil {
		return ""
	}
	return fmt.Sprintf("something arrived from %v instead, and was dropped; if the server answers from that address, name it", *from)
}
