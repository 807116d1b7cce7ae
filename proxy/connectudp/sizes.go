package connectudp

import (
	"net/netip"
	"sync"
	"time"
)

// unfinished remembers clients whose handshakes did not finish: their path's MTU may be small.
type unfinished struct {
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

func newUnfinished() *unfinished {
	return &unfinished{now: time.Now, pending: map[netip.Addr]time.Time{}}
}

// overdue reports whether a client's last handshake should have finished by now.
func (s *unfinished) overdue(from netip.Addr) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	began, ok := s.pending[from]
	age := s.now().Sub(began)
	return ok && age >= narrowAfter && age < narrowFor
}

func (s *unfinished) begun(from netip.Addr) {
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
func (s *unfinished) forgetOne() {
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

func (s *unfinished) finished(from netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pending, from)
}
