package connectudp

import (
	"net/netip"
	"sync"
	"time"

	"heddle/path/masque"
)

// sizes remembers whose handshakes did not end. It tries them again with small packets, which may be all that the way carries.
type sizes struct {
	now func() time.Time

	mu      sync.Mutex
	pending map[netip.Addr]time.Time // when a handshake began that is not finished
}

// A handshake that is not finished after narrowAfter is suspected; after narrowFor nobody remembers it.
const (
	narrowAfter = 500 * time.Millisecond
	narrowFor   = time.Minute
	maxPending  = 4096
	sample      = 16 // of a full table, entries that are looked at to find one to forget
)

func newSizes() *sizes { return &sizes{now: time.Now, pending: map[netip.Addr]time.Time{}} }

// first is the size in bytes that packets to a client begin with.
func (s *sizes) first(from netip.Addr) uint16 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if began, ok := s.pending[from]; ok {
		if age := s.now().Sub(began); age >= narrowAfter && age < narrowFor {
			return masque.PacketNarrow
		}
	}
	return masque.PacketRoomy
}

// begun notes that a handshake began.
func (s *sizes) begun(from netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if began, ok := s.pending[from]; ok && now.Sub(began) < narrowFor {
		return
	}
	if len(s.pending) >= maxPending {
		s.forgetOne()
	}
	s.pending[from] = now
}

// forgetOne forgets, of a few, the one that began first. s.mu is held.
func (s *sizes) forgetOne() {
	var oldest netip.Addr
	looked := 0
	for key, began := range s.pending {
		if looked == 0 || began.Before(s.pending[oldest]) {
			oldest = key
		}
		if looked++; looked == sample {
			break
		}
	}
	delete(s.pending, oldest)
}

// finished notes that the handshake came to its end.
func (s *sizes) finished(from netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pending, from)
}
