package connectudp

import (
	"net/netip"
	"sync"
	"time"

	"heddle/path/masque"
)

// sizes remembers clients whose handshakes did not finish, to use small packets next: their path's MTU may be small.
type sizes struct {
	now func() time.Time

	mu      sync.Mutex
	pending map[netip.Addr]time.Time // start of the unfinished handshake
}

// An unfinished handshake counts from narrowAfter until narrowFor, when it is forgotten.
const (
	narrowAfter = 500 * time.Millisecond
	narrowFor   = time.Minute
	maxPending  = 4096
	sample      = 16 // entries of a full table among which the oldest is evicted
)

func newSizes() *sizes { return &sizes{now: time.Now, pending: map[netip.Addr]time.Time{}} }

// first returns the initial packet size for a client, in bytes.
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

// forgetOne evicts the oldest of a few entries. s.mu is held.
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

func (s *sizes) finished(from netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pending, from)
}
