package gateway

import (
	"net"
	"slices"
	"sync"
	"time"
)

// ways are connections to agents or sidecars that wait for the next client, by what they lead to. The zero value is ready.
type ways[K comparable] struct {
	mu   sync.Mutex
	idle map[K][]waitingWay // the newest last
}

type waitingWay struct {
	net.Conn
	since time.Time
}

// Limits of the connections that wait: those that lead to the same, what they lead to, and how long. The other ends wait for twice as long.
const (
	mostIdle  = 64
	mostKinds = 1024
	waitFor   = idleFor / 2
)

// take returns a connection that waits, or nil.
func (w *ways[K]) take(of K) net.Conn {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.prune(of, time.Now())
	all := w.idle[of]
	if len(all) == 0 {
		return nil
	}
	way := all[len(all)-1].Conn
	if all = all[:len(all)-1]; len(all) == 0 {
		delete(w.idle, of)
	} else {
		w.idle[of] = all
	}
	return way
}

// keep keeps a connection for the next client.
func (w *ways[K]) keep(of K, way net.Conn) {
	_ = way.SetDeadline(time.Time{})
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.idle == nil {
		w.idle = map[K][]waitingWay{}
	}
	w.prune(of, now)
	if len(w.idle) >= mostKinds && w.idle[of] == nil {
		for other := range w.idle {
			w.prune(other, now)
		}
	}
	if len(w.idle[of]) >= mostIdle || len(w.idle) >= mostKinds && w.idle[of] == nil {
		way.Close()
		return
	}
	w.idle[of] = append(w.idle[of], waitingWay{way, now})
}

// drop closes the connections to an address that wait.
func (w *ways[K]) drop(of K, to net.Addr) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.idle[of]) == 0 {
		return
	}
	w.idle[of] = slices.DeleteFunc(w.idle[of], func(way waitingWay) bool {
		gone := way.RemoteAddr().String() == to.String()
		if gone {
			way.Close()
		}
		return gone
	})
	w.prune(of, time.Now())
}

// prune closes connections that wait for too long. w.mu is held.
func (w *ways[K]) prune(of K, now time.Time) {
	all := w.idle[of]
	old := 0
	for old < len(all) && now.Sub(all[old].since) >= waitFor {
		all[old].Close()
		old++
	}
	if all = all[old:]; len(all) > 0 {
		w.idle[of] = all
	} else {
		delete(w.idle, of)
	}
}
