package survey

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"heddle/path"
)

// Answerer measures a node's half for those who ask the node, and spares the network what was just measured: one
// destination is measured once in a while, and few at a time. Its zero value is ready.
type Answerer struct {
	Surveyor Surveyor
	// MaxAge is how old an answer may be; 0 for ten minutes.
	MaxAge time.Duration

	mu    sync.Mutex
	known map[netip.AddrPort]Half
}

// maxKnown bounds an answerer's memory, in halves.
const maxKnown = 4096

// Survey measures the way to a destination by the system's routes. It has the form of a node's hook.
func (a *Answerer) Survey(ctx context.Context, to netip.AddrPort) (any, error) {
	now := a.Surveyor.now()
	maxAge := a.MaxAge
	if maxAge <= 0 {
		maxAge = 10 * time.Minute
	}
	a.mu.Lock()
	h, ok := a.known[to]
	a.mu.Unlock()
	if ok && h.Age(now) <= maxAge {
		return h, nil
	}
	up, err := FindUplink(path.Spec{}, to.Addr())
	if err != nil {
		return nil, err
	}
	halves, err := a.Surveyor.Measure(ctx, []Request{{up, to}})
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.known == nil || len(a.known) >= maxKnown {
		a.known = map[netip.AddrPort]Half{}
	}
	a.known[to] = halves[0]
	return halves[0], nil
}
