package lease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"heddle/overlay/client"
	"heddle/overlay/nat"
	"heddle/path"
)

// fakeNode gives leases until it is told otherwise.
type fakeNode struct {
	mu      sync.Mutex
	given   int
	leases  []string // that hold
	renewed []string // what it was asked to renew
	forgot  bool     // it knows none of its leases, as after a restart
	refuses bool     // new leases
	slow    time.Duration
	away    bool // it does not answer to renewals
}

func (n *fakeNode) Lease(ctx context.Context, r client.NATRequest) (client.NATLease, error) {
	time.Sleep(n.slow) // what was asked for is given, whoever still waits for it
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.refuses {
		return client.NATLease{}, &client.Refusal{Reason: client.ReasonBusy}
	}
	n.given++
	n.forgot = false
	id := fmt.Sprintf("lease-%d", n.given)
	n.leases = append(n.leases, id)
	return client.NATLease{ID: id, Listen: 20000, To: r.To}, nil
}

func (n *fakeNode) Renew(_ context.Context, l client.NATLease, _ time.Duration) (client.NATLease, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.renewed = append(n.renewed, l.ID)
	if n.away {
		return client.NATLease{}, errors.New("no answer")
	}
	if n.forgot {
		return client.NATLease{}, &client.Refusal{Reason: client.ReasonLease}
	}
	return l, nil
}

func (n *fakeNode) Release(_ context.Context, l client.NATLease) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.leases = slices.DeleteFunc(n.leases, func(id string) bool { return id == l.ID })
	return nil
}

func (n *fakeNode) Close() {}

// taken is a set with one lease at a node.
func taken(t *testing.T, n *fakeNode) *Set {
	t.Helper()
	seen := &seenDialer{Path: path.NewSystem(0), remote: netip.MustParseAddrPort("192.0.2.1:7443")}
	s := &Set{o: Options{To: netip.MustParseAddrPort("198.51.100.1:22"), Log: slog.New(slog.DiscardHandler)}, stop: func() {},
		Members: []*Member{{Name: "a", node: n, seen: seen}}}
	if err := s.take(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// A node that was restarted and then gives no lease for a while is asked again for the one that its kernel still has.
func TestALeaseOutlivesARefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &fakeNode{}
		s := taken(t, n)
		done := make(chan struct{})
		n.forgot, n.refuses = true, true
		s.Keep(done)
		time.Sleep(TTL*2/3 + time.Second)
		synctest.Wait()
		n.mu.Lock()
		if len(n.renewed) < 2 || slices.ContainsFunc(n.renewed, func(id string) bool { return id != "lease-1" }) {
			t.Errorf("it was asked to renew %q, and not lease-1 alone", n.renewed)
		}
		n.refuses = false
		n.mu.Unlock()
		time.Sleep(TTL * 2 / 3)
		synctest.Wait()
		close(done)
		s.Release()
		if last := n.renewed[len(n.renewed)-1]; last != "lease-2" {
			t.Errorf("%s is renewed, and not the new lease", last)
		}
	})
}

// A lease that a renewal got while the stream ended is released too.
func TestReleaseWaitsForARenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &fakeNode{}
		s := taken(t, n)
		n.forgot, n.slow = true, time.Second
		s.Keep(make(chan struct{}))
		time.Sleep(TTL/3 + time.Second/2) // in the middle of a renewal
		s.Release()
		if n.given != 2 || slices.Contains(n.leases, "lease-2") {
			t.Errorf("%q of %d are still leased", n.leases, n.given)
		}
	})
}

// A renewal that fails once is tried again long before the lease ends.
func TestAFailedRenewalIsTriedAgainSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &fakeNode{away: true}
		s := taken(t, n)
		s.Keep(make(chan struct{}))
		time.Sleep(TTL/3 + time.Second)
		synctest.Wait()
		n.mu.Lock()
		failed := len(n.renewed)
		n.away = false
		n.mu.Unlock()
		time.Sleep(renewAgain)
		synctest.Wait()
		s.Release()
		if failed != 1 || len(n.renewed) != 2 {
			t.Errorf("%d renewals failed, and then there were %d", failed, len(n.renewed))
		}
	})
}

// fakeRules has one rule, or none.
type fakeRules struct{ leased, held int }

func (r *fakeRules) Lease(rule nat.Rule, _ time.Duration) (nat.Lease, error) {
	r.leased++
	r.held = 1
	return nat.Lease{Rule: rule}, nil
}

func (r *fakeRules) Renew(rule nat.Rule, _ time.Duration) (nat.Lease, error) {
	if r.held == 0 {
		return nat.Lease{}, nat.ErrNoLease
	}
	return nat.Lease{Rule: rule}, nil
}

func (r *fakeRules) Release(nat.Rule) error {
	r.held = 0
	return nil
}

// This machine's own rule that ended, as while the machine slept, is made again.
func TestAnEndedRuleIsMadeAgain(t *testing.T) {
	here := &fakeRules{}
	s := taken(t, &fakeNode{})
	s.local = func() (rules, error) { return here, nil }
	m := s.Members[0]
	m.local = nat.Rule{Client: netip.MustParseAddr("192.0.2.9"), Listen: s.o.To, To: m.At()}
	for range 2 {
		if err := s.renewOne(t.Context(), m); err != nil {
			t.Error(err)
		}
	}
	if here.leased != 1 || here.held != 1 {
		t.Errorf("%d rules were made, and %d hold", here.leased, here.held)
	}
}
