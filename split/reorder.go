package split

import (
	"bytes"
	"sync"
	"time"
)

// reorderer holds back what arrives by a new path while the path before it may still deliver, so that a shorter path
// does not overtake a longer one at a switch: a QUIC server takes three packets overtaken for a loss (RFC 9002, section
// 6.1.1). It cannot see packet numbers, which are encrypted, so it goes by time alone.
type reorderer struct {
	window time.Duration
	now    func() time.Time
	give   func(datagrams [][]byte)

	mu      sync.Mutex
	last    int // path that delivered last
	heard   time.Time
	holding bool
	from    int // path whose datagrams are held
	held    [][]byte
	due     *time.Timer
}

// heldLimit is how many datagrams are held at most: what 100 Mbit/s bring in 100 ms.
const heldLimit = 1024

func newReorderer(window time.Duration, give func([][]byte)) *reorderer {
	return &reorderer{window: window, now: time.Now, give: give, last: -1}
}

// arrived takes datagrams that came by path i, and gives them now or when the window is over.
func (r *reorderer) arrived(i int, datagrams [][]byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	if !r.holding && r.last >= 0 && i != r.last && now.Sub(r.heard) < r.window {
		r.holding, r.from = true, i
		r.due = time.AfterFunc(r.window, r.release)
	}
	if r.holding && i == r.from {
		for _, d := range datagrams {
			r.held = append(r.held, bytes.Clone(d))
		}
		if len(r.held) >= heldLimit {
			r.flush()
		}
		return
	}
	r.give(datagrams)
	if !r.holding {
		r.last = i
	}
	r.heard = now
}

func (r *reorderer) release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.flush()
}

// flush gives what is held. r.mu is held.
func (r *reorderer) flush() {
	if !r.holding {
		return
	}
	r.due.Stop()
	r.give(r.held)
	r.last, r.heard, r.holding, r.held = r.from, r.now(), false, nil
}
