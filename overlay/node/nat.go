package node

import (
	"context"
	"maps"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"heddle/identity"
	"heddle/overlay/client"
)

// NAT is the kernel's table of address translation. Its leases expire even without the node.
type NAT interface {
	// Lease forwards TCP from want.Client to port want.Listen (0: any free one) on to want.To.
	Lease(ctx context.Context, want client.NATLease, ttl time.Duration) (client.NATLease, error)
	// Renew makes a lease end ttl from now.
	Renew(ctx context.Context, id string, ttl time.Duration) (client.NATLease, error)
	Release(ctx context.Context, id string) error
}

// Metered is a NAT that counts the bytes of each lease. Grants with a byte limit need one.
type Metered interface {
	// Carried returns the bytes of a lease, both ways.
	Carried(ctx context.Context, id string) (int64, error)
}

// lease is a holder's lease.
type lease struct {
	account *account
	until   time.Time
	counted int64 // bytes charged to the account
}

// leases are the holders' leases in the node's table.
type leases struct {
	mu sync.Mutex
	of map[string]lease
}

// nat makes, renews or releases a lease.
func (n *Node) nat(w http.ResponseWriter, r *http.Request, holder identity.Key, id string) (any, *client.Refusal) {
	a, why := n.admit(r, holder, client.ModeNAT)
	if why != nil {
		return nil, why
	}
	switch {
	case r.Method == http.MethodPost && id == "":
		return n.lease(w, r, a)
	case r.Method == http.MethodPost:
		return n.renew(w, r, a, id)
	case r.Method == http.MethodDelete && id != "":
		return n.release(r, a, id)
	}
	return nil, &client.Refusal{Reason: client.ReasonRequest}
}

// lease makes a rule for the address that the request came from, so that nobody can request for others.
func (n *Node) lease(w http.ResponseWriter, r *http.Request, a *account) (any, *client.Refusal) {
	var ask client.NATRequest
	if !readBody(w, r, &ask) || !ask.To.IsValid() || ask.TTL < 1 {
		return nil, &client.Refusal{Reason: client.ReasonRequest}
	}
	remote, err := netip.ParseAddrPort(r.RemoteAddr)
	where, placesErr := n.places(a.grant)
	if err != nil || placesErr != nil || !where.allowed("", ask.To) {
		return nil, &client.Refusal{Reason: client.ReasonDestination}
	}
	if _, metered := n.o.NAT.(Metered); a.grant.Bytes > 0 && !metered {
		return nil, &client.Refusal{Reason: client.ReasonNoMode, Detail: "the node's kernel does not count bytes, and the grant limits them"}
	}
	defer a.leases.Add(-1) // of this request; the lease counts by itself
	if a.leases.Add(1) > maxLeasesByGrant {
		return nil, &client.Refusal{Reason: client.ReasonBusy}
	}
	l, err := n.o.NAT.Lease(r.Context(), client.NATLease{Client: remote.Addr().Unmap(), Listen: ask.Listen, To: ask.To}, n.lasts(a, ask.TTL))
	if err != nil {
		n.log.Warn("a lease failed", "err", err)
		return nil, &client.Refusal{Reason: client.ReasonFailed, Detail: err.Error()}
	}
	n.leases.put(l, a)
	n.note("lease begins", a, r.RemoteAddr, ask.To.String())
	return l, nil
}

// lasts limits a lease's duration to the grant's.
func (n *Node) lasts(a *account, seconds int) time.Duration {
	asked := time.Duration(min(seconds, int(longestLease/time.Second))) * time.Second
	return max(min(asked, a.grant.Until.Sub(n.o.now())), time.Second)
}

func (n *Node) renew(w http.ResponseWriter, r *http.Request, a *account, id string) (any, *client.Refusal) {
	var ask client.NATRequest
	if !readBody(w, r, &ask) || ask.TTL < 1 {
		return nil, &client.Refusal{Reason: client.ReasonRequest}
	}
	if !n.leases.belongs(id, a) {
		return nil, &client.Refusal{Reason: client.ReasonLease}
	}
	l, err := n.o.NAT.Renew(r.Context(), id, n.lasts(a, ask.TTL))
	if err != nil {
		n.leases.drop(id)
		return nil, &client.Refusal{Reason: client.ReasonLease}
	}
	n.leases.put(l, a)
	return l, nil
}

func (n *Node) release(r *http.Request, a *account, id string) (any, *client.Refusal) {
	if !n.leases.belongs(id, a) {
		return nil, &client.Refusal{Reason: client.ReasonLease}
	}
	n.leases.charge(r.Context(), n.o.NAT, id)
	n.leases.drop(id)
	if err := n.o.NAT.Release(r.Context(), id); err != nil {
		return nil, &client.Refusal{Reason: client.ReasonFailed, Detail: err.Error()}
	}
	return struct{}{}, nil
}

func (l *leases) put(one client.NATLease, a *account) {
	l.mu.Lock()
	defer l.mu.Unlock()
	old, held := l.of[one.ID]
	if held {
		old.account.leases.Add(-1)
	}
	a.leases.Add(1)
	l.of[one.ID] = lease{account: a, until: one.Until, counted: old.counted}
}

func (l *leases) drop(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if one, held := l.of[id]; held {
		one.account.leases.Add(-1)
		delete(l.of, id)
	}
}

func (l *leases) belongs(id string, a *account) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.of[id].account == a
}

// charge charges a lease's account for what the kernel carried since the last call.
func (l *leases) charge(ctx context.Context, table NAT, id string) {
	meter, ok := table.(Metered)
	if !ok {
		return
	}
	carried, err := meter.Carried(ctx, id)
	l.mu.Lock()
	defer l.mu.Unlock()
	one, held := l.of[id]
	if err != nil || !held || carried <= one.counted {
		return
	}
	one.account.used.Add(carried - one.counted)
	one.counted = carried
	l.of[id] = one
}

// sweep drops expired leases, and ends those whose grant is revoked or used up.
func (l *leases) sweep(table NAT, revoked func(client.Grant) bool, now time.Time) {
	ctx, cancel := context.WithTimeout(context.Background(), patienceRequest)
	defer cancel()
	for id, one := range l.copy() {
		l.charge(ctx, table, id)
		switch {
		case now.After(one.until):
			l.drop(id)
		case revoked(one.account.grant), !one.account.left():
			l.drop(id)
			_ = table.Release(ctx, id) // it expires anyway
		}
	}
}

func (l *leases) copy() map[string]lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.of)
}

// releaseAll ends all leases. One that cannot be released expires.
func (l *leases) releaseAll(table NAT) {
	ctx, cancel := context.WithTimeout(context.Background(), patienceRequest)
	defer cancel()
	for id := range l.copy() {
		l.drop(id)
		_ = table.Release(ctx, id)
	}
}
