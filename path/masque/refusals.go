package masque

import (
	"errors"
	"net/netip"
	"sync"
	"time"

	"heddle/path"
	"heddle/path/group"
)

// Limits of the time until a proxy is asked again for what it refused. The time doubles with each refusal.
const (
	retryFirst   = time.Second
	retryLongest = time.Minute
	maxRefusals  = 64
)

// refusals remembers failures by target, so that frequent calls do not cause as many requests. The zero address means the
// proxy itself. The zero value is ready for use.
type refusals struct {
	mu sync.Mutex
	of map[netip.AddrPort]*refusal
}

type refusal struct {
	err   error
	retry group.Backoff
}

// laterError is a failure after which the proxy asks the client to wait (Retry-After).
type laterError struct {
	problem *path.Error
	after   time.Duration
}

func (e *laterError) Error() string { return e.problem.Error() }
func (e *laterError) Unwrap() error { return e.problem }

// standing returns the failure that is too recent to retry, or nil.
func (r *refusals) standing(to netip.AddrPort, now time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if one := r.of[to]; one != nil && !one.retry.Due(now) {
		return one.err
	}
	return nil
}

func (r *refusals) note(to netip.AddrPort, err error, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of == nil {
		r.of = map[netip.AddrPort]*refusal{}
	}
	one := r.of[to]
	if one == nil {
		r.makeRoom(now)
		one = &refusal{}
		r.of[to] = one
	}
	least := retryFirst
	if later, ok := errors.AsType[*laterError](err); ok {
		least = max(least, later.after)
	}
	one.err = err
	one.retry.Tried(now, least, retryLongest)
}

// makeRoom forgets the failure that expires first if there are too many. r.mu is held.
func (r *refusals) makeRoom(now time.Time) {
	if len(r.of) < maxRefusals {
		return
	}
	var oldest netip.AddrPort
	end := now.Add(2 * retryLongest)
	for to, one := range r.of {
		if next := one.retry.Next(); next.Before(end) && to.IsValid() {
			oldest, end = to, next
		}
	}
	delete(r.of, oldest)
}

func (r *refusals) forgive(to netip.AddrPort) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.of, to)
}
