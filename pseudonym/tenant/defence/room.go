package defence

import "sync"

// Limits of what waits to be fetched. A load that finds no room fails: one that passed whole would show its size.
const (
	mostHeld   = 512 << 20 // bytes of all visitors
	mostHeldOf = 32 << 20  // bytes of one visitor
	mostOf     = 512       // loads of one visitor
)

// room counts what waits to be fetched.
type room struct {
	mu   sync.Mutex
	held int64
	of   map[string]*share
}

// share is what one visitor has of the room.
type share struct {
	loads int
	held  int64
}

// enter takes a place for a load.
func (r *room) enter(visitor string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.of[visitor]
	if s == nil {
		s = &share{}
		r.of[visitor] = s
	}
	if s.loads == mostOf {
		return false
	}
	s.loads++
	return true
}

// leave returns the place of a load. What it held is given back before.
func (r *room) leave(visitor string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.of[visitor]; s.loads > 1 {
		s.loads--
	} else {
		delete(r.of, visitor)
	}
}

// take takes so many bytes for a load that has a place.
func (r *room) take(visitor string, n int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.of[visitor]
	if r.held+int64(n) > mostHeld || s.held+int64(n) > mostHeldOf {
		return false
	}
	r.held += int64(n)
	s.held += int64(n)
	return true
}

// giveBack returns bytes.
func (r *room) giveBack(visitor string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held -= int64(n)
	r.of[visitor].held -= int64(n)
}
