package ovsswitch

import (
	"sync"

	"heddle/internal/openflow"
)

// mostPackets is how many packets wait at most. The bridge hands over few, unless somebody forges them.
const mostPackets = 1024

// events is what the bridge said that was not yet handled.
type events struct {
	mu      sync.Mutex
	all     []any
	packets int
	wake    chan struct{} // has room for one
}

func newEvents() *events { return &events{wake: make(chan struct{}, 1)} }

// put adds an event. It drops a packet if too many wait.
func (e *events) put(event any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, is := event.(openflow.Packet); is {
		if e.packets == mostPackets {
			return
		}
		e.packets++
	}
	e.all = append(e.all, event)
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// take returns all events.
func (e *events) take() (all []any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	all, e.all, e.packets = e.all, nil, 0
	return all
}
