package dial

import (
	"context"
	"errors"
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
	// nextAfter is how long one address is waited for before the next is tried beside it (RFC 8305, section 5). It leaves time for a lost packet
	// on most networks.
	nextAfter = 300 * time.Millisecond
)

// attempted is what became of an attempt.
type attempted struct {
	place int // in the order of the attempts
	conn  net.Conn
	err   error
}

// Dial connects to one of the addresses, HOST:PORT or unix:FILE. It tries them from a random one on, and those last that did not answer lately.
// The next is tried as soon as one fails, and beside one that is silent. Dial fails with the last error, and with [ErrNone] without addresses.
func (f *Failover) Dial(ctx context.Context, addresses []string) (net.Conn, error) {
	c, _, err := f.DialWhich(ctx, addresses)
	return c, err
}

// DialWhich is [Failover.Dial], and returns the address that answered too.
func (f *Failover) DialWhich(ctx context.Context, addresses []string) (_ net.Conn, address string, _ error) {
	if err := ctx.Err(); err != nil {
		return nil, "", err
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	results, over := make(chan attempted), make(chan struct{})
	defer close(over)
	all, err := f.order(addresses, time.Now()), ErrNone
	begun, pending := 0, map[int]bool{}
	next := time.NewTimer(0)
	defer next.Stop()
	for begun < len(all) && ctx.Err() == nil || len(pending) > 0 {
		select {
		case <-next.C:
			if begun == len(all) {
				continue
			}
			go f.attempt(ctx, begun, all[begun], results, over)
			pending[begun] = true
			begun++
			next.Reset(nextAfter)
		case r := <-results:
			delete(pending, r.place)
			if r.err == nil {
				f.avoid(unanswered(all, pending, r.place), time.Now())
				return r.conn, all[r.place], nil
			}
			err = r.err
			if !errors.Is(ctx.Err(), context.Canceled) { // else it was not asked for long enough
				f.avoid(all[r.place:r.place+1], time.Now())
			}
			next.Reset(0)
		}
	}
	return nil, "", err
}

// Leave has an address tried last from now on, as one that did not answer: the service there is of no use. It reports whether another of some
// addresses may be.
func (f *Failover) Leave(address string, addresses []string) (others bool) {
	now := time.Now()
	f.avoid([]string{address}, now)
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.ContainsFunc(addresses, func(a string) bool { return !f.late(a, now) })
}

// late reports whether an address did not answer lately. f.mu is held.
func (f *Failover) late(address string, now time.Time) bool {
	at, ok := f.failed[address]
	return ok && now.Sub(at) < avoidFor
}

// unanswered returns those that were tried before the one that answered, and did not.
func unanswered(all []string, pending map[int]bool, answered int) (some []string) {
	for place := range pending {
		if place < answered {
			some = append(some, all[place])
		}
	}
	return some
}

// attempt connects to one address. Nobody takes the result once it is over.
func (f *Failover) attempt(ctx context.Context, place int, address string, results chan<- attempted, over <-chan struct{}) {
	single := f.single
	if single == nil {
		single = func(ctx context.Context, address string) (net.Conn, error) {
			network, at := netutil.Network(address)
			return (&net.Dialer{}).DialContext(ctx, network, at)
		}
	}
	c, err := single(ctx, address)
	select {
	case results <- attempted{place, c, err}:
	case <-over:
		if c != nil {
			c.Close()
		}
	}
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
		if f.late(address, now) {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(all, func(a, b string) int { return late(a) - late(b) })
	return all
}

// avoid remembers addresses that did not answer. If it knows too many such, it forgets them all: that costs one more try for each.
func (f *Failover) avoid(addresses []string, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, address := range addresses {
		if f.failed == nil || len(f.failed) >= mostFailed {
			f.failed = map[string]time.Time{}
		}
		f.failed[address] = now
	}
}
