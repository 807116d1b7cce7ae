// Package wgqueue bounds how many packets are inside an embedded wireguard-go.
//
// wireguard-go holds a buffer of 64 KiB for each packet inside it, and without a bound a busy TCP connection fills
// thousands. What waits outside waits in a queue that tells the sender, such as the kernel's.
//
// Do not use it where every packet that goes in is known to come out: a semaphore does that better.
package wgqueue

import (
	"sync/atomic"
	"time"

	"heddle/internal/netutil"
)

// Limit is how many packets keep wireguard-go busy: more of them only cost memory.
const Limit = 64

// A packet that wireguard-go drops never comes out. After patience without any coming out the gate forgets them.
const patience = 5 * time.Millisecond

// Gate counts the packets inside, in one direction.
type Gate struct {
	limit  int64
	inside atomic.Int64
	freed  chan struct{}
}

// New makes a gate for so many packets.
func New(limit int) *Gate { return &Gate{limit: int64(limit), freed: make(chan struct{}, 1)} }

// Wait blocks while the gate is full.
func (g *Gate) Wait() {
	for g.inside.Load() >= g.limit {
		timer := time.NewTimer(patience)
		select {
		case <-g.freed:
			timer.Stop()
		case <-timer.C:
			g.inside.Store(0)
		}
	}
}

// Enter notes that n packets went in.
func (g *Gate) Enter(n int) { g.inside.Add(int64(n)) }

// Leave notes that n packets came out.
func (g *Gate) Leave(n int) {
	if g.inside.Add(-int64(n)) < 0 {
		g.inside.Store(0)
	}
	netutil.Offer(g.freed, struct{}{})
}
