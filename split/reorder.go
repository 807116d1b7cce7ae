package split

import (
	"bytes"
	"sync"
	"time"
)

// reorderer holds back what arrives by a new path until the path before it has delivered what the server sent there, so
// that nothing overtakes at a switch: a QUIC sender takes three packets overtaken for a loss (RFC 9002, section 6.1.1). A
// path that delivered what was in its queues falls silent; packet numbers, which would tell more, are encrypted.
type reorderer struct {
	window time.Duration // how long anything is held at most
	now    func() time.Time
	give   func(datagrams [][]byte)

	mu    sync.Mutex
	last  int       // path that is given at once
	heard time.Time // when something last arrived by it
	held  []visit   // in the order in which their paths were first heard
	count int       // datagrams in held
	due   *time.Timer
}

// visit is what arrived by one path since the server went over to it.
type visit struct {
	path        int
	first, last time.Time
	datagrams   [][]byte
}

const (
	// drained is how long a path must be silent to have delivered all: several packets' time at 10 Mbit/s.
	drained = 3 * time.Millisecond
	// heldLimit is how many datagrams are held at most: what 100 Mbit/s bring in 100 ms.
	heldLimit = 1024
)

func newReorderer(window time.Duration, give func([][]byte)) *reorderer {
	return &reorderer{window: window, now: time.Now, give: give, last: -1}
}

// arrived takes datagrams that came by path i, and gives them now or when their turn comes.
func (r *reorderer) arrived(i int, datagrams [][]byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	r.advance(now)
	if i == r.last || len(r.held) == 0 && (r.last < 0 || now.Sub(r.heard) >= drained) {
		r.give(datagrams)
		r.last, r.heard = i, now
		return
	}
	r.hold(i, now, datagrams)
	if r.count >= heldLimit {
		for len(r.held) > 0 {
			r.next()
		}
	}
	r.arm(now)
}

func (r *reorderer) hold(i int, now time.Time, datagrams [][]byte) {
	at := -1
	for k := range r.held {
		if r.held[k].path == i {
			at = k
		}
	}
	if at < 0 {
		at = len(r.held)
		r.held = append(r.held, visit{path: i, first: now})
	}
	v := &r.held[at]
	v.last = now
	for _, d := range datagrams {
		v.datagrams = append(v.datagrams, bytes.Clone(d))
	}
	r.count += len(datagrams)
}

// advance gives the visits whose turn has come. r.mu is held.
func (r *reorderer) advance(now time.Time) {
	for len(r.held) > 0 && (now.Sub(r.heard) >= drained || now.Sub(r.held[0].first) >= r.window) {
		r.next()
	}
}

// next gives the oldest visit; from then on its path is given at once. r.mu is held.
func (r *reorderer) next() {
	v := r.held[0]
	r.held = r.held[1:]
	r.count -= len(v.datagrams)
	r.give(v.datagrams)
	r.last, r.heard = v.path, v.last
}

// arm sets the timer to when the oldest visit's turn comes. r.mu is held.
func (r *reorderer) arm(now time.Time) {
	if len(r.held) == 0 {
		return
	}
	wait := min(drained-now.Sub(r.heard), r.window-now.Sub(r.held[0].first))
	if r.due == nil {
		r.due = time.AfterFunc(wait, r.tick)
		return
	}
	r.due.Reset(wait)
}

func (r *reorderer) tick() {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	r.advance(now)
	r.arm(now)
}
