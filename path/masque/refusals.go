package masque

import (
	"errors"
	"net/netip"
	"time"

	"heddle/path"
)

// How soon a proxy is asked again for what it refused: twice as late each time.
const (
	retryFirst   = time.Second
	retryLongest = time.Minute
	maxRefusals  = 64
)

// refusals remembers what failed, by target, so that whoever asks four times a second does not ask the network as
// often. The zero address stands for the proxy itself. The zero value is ready for use.
type refusals struct{ of map[netip.AddrPort]*refusal }

type refusal struct {
	err   error
	wait  time.Duration
	until time.Time
}

// laterError is a failure that the other side wants not to hear of for a while.
type laterError struct {
	problem *path.Error
	after   time.Duration
}

func (e *laterError) Error() string { return e.problem.Error() }
func (e *laterError) Unwrap() error { return e.problem }

// standing gives the failure that is too fresh to be tried again, or nil.
func (r *refusals) standing(to netip.AddrPort, now time.Time) error {
	if one := r.of[to]; one != nil && now.Before(one.until) {
		return one.err
	}
	return nil
}

// note remembers a failure.
func (r *refusals) note(to netip.AddrPort, err error, now time.Time) {
	if r.of == nil {
		r.of = map[netip.AddrPort]*refusal{}
	}
	one := r.of[to]
	if one == nil {
		r.makeRoom(now)
		one = &refusal{}
		r.of[to] = one
	}
	one.wait = min(max(2*one.wait, retryFirst), retryLongest)
	var later *laterError
	if errors.As(err, &later) {
		one.wait = min(max(one.wait, later.after), retryLongest)
	}
	one.err, one.until = err, now.Add(one.wait)
}

// makeRoom forgets the failure that ends soonest, where there are too many.
func (r *refusals) makeRoom(now time.Time) {
	if len(r.of) < maxRefusals {
		return
	}
	var oldest netip.AddrPort
	end := now.Add(2 * retryLongest)
	for to, one := range r.of {
		if one.until.Before(end) && to.IsValid() {
			oldest, end = to, one.until
		}
	}
	delete(r.of, oldest)
}

func (r *refusals) forgive(to netip.AddrPort) { delete(r.of, to) }
