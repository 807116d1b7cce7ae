package node

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"heddle/identity"
	"heddle/overlay/client"
)

func mustAddrPort(text string) netip.AddrPort { return netip.MustParseAddrPort(text) }

// table is a NAT table in memory.
type table struct {
	mu      sync.Mutex
	rules   map[string]client.NATLease
	ttl     time.Duration
	carried int64
}

func (t *table) Lease(_ context.Context, r client.NATLease, ttl time.Duration) (client.NATLease, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r.ID, r.Listen, r.Until = fmt.Sprint(len(t.rules)), 4000, time.Now().Add(ttl)
	t.rules[r.ID], t.ttl = r, ttl
	return r, nil
}

func (t *table) Renew(_ context.Context, id string, ttl time.Duration) (client.NATLease, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r, held := t.rules[id]
	if !held {
		return client.NATLease{}, errors.New("none")
	}
	r.Until, t.ttl = time.Now().Add(ttl), ttl
	return r, nil
}

func (t *table) Release(_ context.Context, id string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.rules, id)
	return nil
}

func (t *table) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.rules)
}

// metered is a table that counts.
type metered struct{ *table }

func (t metered) Carried(context.Context, string) (int64, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.carried, nil
}

func (s *setup) client(t *testing.T, id identity.Identity, grant client.Signed) *client.Client {
	t.Helper()
	c, err := client.New(s.pass(grant), id, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func forNAT(g *client.Grant) {
	g.Modes, g.To = []string{client.ModeNAT}, []string{"192.0.2.1:443"}
}

func TestLeases(t *testing.T) {
	rules := &table{rules: map[string]client.NATLease{}}
	s := start(t, func(o *Options) { o.Modes, o.NAT = []string{client.ModeNAT}, rules })
	server := mustAddrPort("192.0.2.1:443")
	c := s.client(t, s.holder, s.grant(t, forNAT))
	l, err := c.Lease(t.Context(), client.NATRequest{To: server, TTL: 1_000_000})
	if err != nil || l.Listen != 4000 || l.To != server || l.Client != netip.MustParseAddr("127.0.0.1") {
		t.Fatalf("%+v, %v", l, err)
	}
	if rules.ttl > time.Hour || rules.ttl < 59*time.Minute {
		t.Errorf("a lease outlives its grant: %v", rules.ttl)
	}
	if _, err := c.Renew(t.Context(), l, 30*time.Second); err != nil || rules.ttl != 30*time.Second {
		t.Errorf("renewed for %v, %v", rules.ttl, err)
	}
	other := fresh(t)
	theirs := s.client(t, other, s.grant(t, func(g *client.Grant) { forNAT(g); g.Holder = other.Key() }))
	if err := theirs.Release(t.Context(), l); reasonOf(err) != client.ReasonLease {
		t.Errorf("another holder's lease: %v", err)
	}
	if _, err := theirs.Renew(t.Context(), l, time.Second); reasonOf(err) != client.ReasonLease {
		t.Errorf("another holder's lease: %v", err)
	}
	if _, err := c.Lease(t.Context(), client.NATRequest{To: mustAddrPort("192.0.2.2:443"), TTL: 10}); reasonOf(err) != client.ReasonDestination {
		t.Errorf("elsewhere: %v", err)
	}
	if _, err := c.Lease(t.Context(), client.NATRequest{To: server}); reasonOf(err) != client.ReasonRequest {
		t.Errorf("for no time: %v", err)
	}
	limited := s.client(t, s.holder, s.grant(t, func(g *client.Grant) { forNAT(g); g.Bytes = 1000 }))
	if _, err := limited.Lease(t.Context(), client.NATRequest{To: server, TTL: 10}); reasonOf(err) != client.ReasonNoMode {
		t.Errorf("bytes that nobody counts: %v", err)
	}
	if err := c.Release(t.Context(), l); err != nil || rules.count() != 0 {
		t.Errorf("%d rules are left, %v", rules.count(), err)
	}
	for i := range maxLeasesByGrant + 1 {
		if _, err := c.Lease(t.Context(), client.NATRequest{To: server, TTL: 10}); (err != nil) != (i == maxLeasesByGrant) {
			t.Fatalf("lease %d: %v", i, err)
		}
	}
}

// Leases end with what they were given by: a revoked grant, used up bytes, the node.
func TestLeasesEnd(t *testing.T) {
	rules := metered{&table{rules: map[string]client.NATLease{}}}
	s := start(t, func(o *Options) { o.Modes, o.NAT = []string{client.ModeNAT}, rules })
	server := mustAddrPort("192.0.2.1:443")
	lease := func(edit func(*client.Grant)) client.Signed {
		t.Helper()
		grant := s.grant(t, edit)
		if _, err := s.client(t, s.holder, grant).Lease(t.Context(), client.NATRequest{To: server, TTL: 100}); err != nil {
			t.Fatal(err)
		}
		return grant
	}
	lease(func(g *client.Grant) { forNAT(g); g.Bytes = 1000 })
	s.enforce()
	if rules.count() != 1 {
		t.Error("a lease ended before its bytes did")
	}
	rules.mu.Lock()
	rules.carried = 1000
	rules.mu.Unlock()
	s.enforce()
	if rules.count() != 0 || s.Status().Grants[0].Used != 1000 {
		t.Errorf("%d rules, %+v", rules.count(), s.Status().Grants)
	}
	grant := lease(forNAT)
	if err := Revoke(s.o.Revoked, grant.Grant.ID, ""); err != nil {
		t.Fatal(err)
	}
	s.enforce()
	if rules.count() != 0 {
		t.Error("a revoked lease is left")
	}
	lease(forNAT)
	s.stop()
	s.done <- <-s.done
	if rules.count() != 0 {
		t.Error("a lease outlives the node")
	}
}

// A lease that nothing passed by is still its holder's when the node tidies up its accounts, and still counts.
func TestQuietLeasesAreKept(t *testing.T) {
	rules := &table{rules: map[string]client.NATLease{}}
	var ahead atomic.Int64
	s := start(t, func(o *Options) {
		o.Modes, o.NAT = []string{client.ModeNAT}, rules
		o.now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	})
	grant := s.grant(t, forNAT)
	c := s.client(t, s.holder, grant)
	l, err := c.Lease(t.Context(), client.NATRequest{To: mustAddrPort("192.0.2.1:443"), TTL: 1000})
	if err != nil {
		t.Fatal(err)
	}
	ahead.Store(int64(2 * unusedFor))
	if err := s.ledger.keep(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Renew(t.Context(), l, time.Minute); err != nil {
		t.Errorf("renewed after two quiet minutes: %v", err)
	}
	ahead.Store(0) // the table's clock is no other
	// Many at once get no more than one after the other.
	var made atomic.Int32
	var asking sync.WaitGroup
	for range 2 * maxLeasesByGrant {
		asking.Go(func() {
			if _, err := s.client(t, s.holder, grant).Lease(t.Context(), client.NATRequest{To: mustAddrPort("192.0.2.1:443"), TTL: 1000}); err == nil {
				made.Add(1)
			}
		})
	}
	asking.Wait()
	if n := rules.count(); n > maxLeasesByGrant || n != int(made.Load())+1 {
		t.Errorf("%d rules, of which %d were made at once, and %d may be", n, made.Load(), maxLeasesByGrant)
	}
}

func TestSurvey(t *testing.T) {
	s := start(t, func(o *Options) {
		o.Modes = []string{client.ModeSurvey}
		o.Survey = func(_ context.Context, to netip.AddrPort) (any, error) {
			if to.Port() == 9 {
				return nil, errors.New("scamper is absent")
			}
			return map[string]string{"to": to.String()}, nil
		}
	})
	c := s.client(t, s.holder, s.grant(t, func(g *client.Grant) { g.Modes, g.To = []string{client.ModeSurvey}, []string{"192.0.2.1"} }))
	if found, err := c.Survey(t.Context(), mustAddrPort("192.0.2.1:443")); err != nil || string(found) != `{"to":"192.0.2.1:443"}` {
		t.Errorf("%s, %v", found, err)
	}
	if _, err := c.Survey(t.Context(), mustAddrPort("192.0.2.2:443")); reasonOf(err) != client.ReasonDestination {
		t.Errorf("elsewhere: %v", err)
	}
	if _, err := c.Survey(t.Context(), mustAddrPort("192.0.2.1:9")); reasonOf(err) != client.ReasonFailed {
		t.Errorf("failed: %v", err)
	}
}
