// Package wgqueue limits the number of packets inside an embedded wireguard-go, which keeps a 64 KiB buffer for each:
// without a limit, a busy TCP connection fills thousands. Packets outside wait in a queue that slows the sender, such as the
// kernel's. Do not use it if every packet that enters also leaves: a semaphore is better.
package wgqueue

import (
	"sync/atomic"
	"time"

	"heddle/internal/netutil"
)

// Limit is the number of packets that keep wireguard-go busy. More would only cost memory.
const Limit = 64

// patience is the time without any packet leaving after which the gate forgets the ones inside: wireguard-go dropped them.
const patience = 5 * time.Millisecond

type Gate struct {
	limit  int64
	inside atomic.Int64
	freed  chan struct{}
}

func New(limit int) *Gate { return &Gate{limit: int64(limit), freed: make(chan struct{}, 1)} }

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

// Enter records that n packets entered.
func (g *Gate) Enter(n int) { g.inside.Add(int64(n)) }

// Leave records that n packets left.
func (g *Gate) Leave(n int) {
	if g.inside.Add(-int64(n)) < 0 {
		g.inside.Store(0)
	}
	netutil.Offer(g.freed, struct{}{})
}
