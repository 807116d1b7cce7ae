package dial

import (
	"context"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"

	"heddle/internal/netutil"
)

// Failover connects to services that have several addresses each. The zero value is ready. It is safe for concurrent use.
type Failover struct {
	mu     sync.Mutex
	failed map[string]time.Time
	single func(ctx context.Context, address string) (net.Conn, error) // of tests
}

const (
	avoidFor   = 10 * time.Second // an address that did not answer
	mostFailed = 1024             // addresses that it remembers
)

// Dial connects to one of the addresses, HOST:PORT or unix:FILE. It tries them in turn from a random one on, and those last that did not answer
// lately. Each gets a share of the time until the deadline of ctx. It fails as [First] does.
func (f *Failover) Dial(ctx context.Context, addresses []string) (net.Conn, error) {
	return First(ctx, f.order(addresses, time.Now()), func(ctx context.Context, address string) (net.Conn, error) {
		single := f.single
		if single == nil {
			single = func(ctx context.Context, address string) (net.Conn, error) {
				network, at := netutil.Network(address)
				return (&net.Dialer{}).DialContext(ctx, network, at)
			}
		}
		c, err := single(ctx, address)
		if err != nil && len(addresses) > 1 {
			f.avoid(address, time.Now())
		}
		return c, err
	})
}

// order returns the addresses as they are tried.
func (f *Failover) order(addresses []string, now time.Time) []string {
	if len(addresses) < 2 {
		return addresses
	}
	first := rand.IntN(len(addresses))
	all := slices.Concat(addresses[first:], addresses[:first])
	f.mu.Lock()
	defer f.mu.Unlock()
	late := func(address string) int {
		if at, ok := f.failed[address]; ok && now.Sub(at) < avoidFor {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(all, func(a, b string) int { return late(a) - late(b) })
	return all
}

// avoid remembers that an address did not answer. If it knows too many such, it forgets them all: that costs one more try for each.
func (f *Failover) avoid(address string, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failed == nil || len(f.failed) >= mostFailed {
		f.failed = map[string]time.Time{}
	}
	f.failed[address] = now
}
