package node

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"heddle/identity"
	"heddle/overlay/client"
)

// NAT is the table of address translation in the kernel. Its leases end by themselves, whatever becomes of the node.
type NAT interface {
	// Lease has what comes from rule.Client to the port rule.Listen, TCP, go on to rule.To.
	Lease(ctx context.Context, rule NATRule, ttl time.Duration) (NATLease, error)
	// Renew has a lease end ttl from now.
	Renew(ctx context.Context, id string, ttl time.Duration) (NATLease, error)
	// Release ends a lease.
	Release(ctx context.Context, id string) error
}

// NATRule says what is translated.
type NATRule struct {
	Client netip.Addr
	Listen uint16 // 0 is any free port
	To     netip.AddrPort
}

// NATLease is a rule while it lasts.
type NATLease struct {
	ID    string
	Rule  NATRule // with the port that it has
	Until time.Time
}

// Metered is a table that counts what each lease carried. Grants with a limit of bytes have leases only of such a table.
type Metered interface {
	// Carried gives the bytes of a lease, both ways.
	Carried(ctx context.Context, id string) (int64, error)
}

// lease is one that a holder has.
type lease struct {
	account *account
	until   time.Time
	counted int64 // bytes that the account was charged
}

// leases are those that the node's table has for holders.
type leases struct {
	mu sync.Mutex
	of map[string]lease
}

// nat gives, renews or releases a lease.
func (n *Node) nat(w http.ResponseWriter, r *http.Request, holder identity.Key) {
	a, why := n.admit(r, holder, client.ModeNAT)
	if why != nil {
		n.refuse(w, r, why)
		return
	}
	id := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, client.NATURL), "/")
	switch {
	case r.Method == http.MethodPost && id == "":
		n.lease(w, r, a)
	case r.Method == http.MethodPost:
		n.renew(w, r, a, id)
	case r.Method == http.MethodDelete && id != "":
		n.release(w, r, a, id)
	default:
		n.refuse(w, r, &client.Refusal{Reason: client.ReasonRequest})
	}
}

// lease makes a rule for whoever asks, by the address that they ask from: nobody can ask for somebody else.
func (n *Node) lease(w http.ResponseWriter, r *http.Request, a *account) {
	var ask client.NATRequest
	if !readBody(w, r, &ask) || !ask.To.IsValid() || ask.TTL < 1 {
		n.refuse(w, r, &client.Refusal{Reason: client.ReasonRequest})
		return
	}
	remote, err := netip.ParseAddrPort(r.RemoteAddr)
	where, placesErr := n.places(a.grant)
	if err != nil || placesErr != nil || !where.allowed("", ask.To) {
		n.refuse(w, r, &client.Refusal{Reason: client.ReasonDestination})
		return
	}
	if _, metered := n.o.NAT.(Metered); a.grant.Bytes > 0 && !metered {
		n.refuse(w, r, &client.Refusal{Reason: client.ReasonNoMode, Detail: "the node's kernel does not count bytes, and the grant limits them"})
		return
	}
	defer a.leases.Add(-1) // of this request; what comes of it counts by itself
	if a.leases.Add(1) > maxLeasesByGrant {
		n.refuse(w, r, &client.Refusal{Reason: client.ReasonBusy})
		return
	}
	l, err := n.o.NAT.Lease(r.Context(), NATRule{Client: remote.Addr().Unmap(), Listen: ask.Listen, To: ask.To}, n.lasts(a, ask.TTL))
	if err != nil {
		n.log.Warn("a lease failed", "err", err)
		n.refuse(w, r, &client.Refusal{Reason: client.ReasonFailed, Detail: err.Error()})
		return
	}
	n.leases.put(l, a)
	n.note("lease begins", a, r.RemoteAddr, ask.To.String())
	n.answer(w, answerLease(l))
}

// lasts bounds how long a lease lasts by the grant's end.
func (n *Node) lasts(a *account, seconds int) time.Duration {
	asked := time.Duration(min(seconds, int(longestLease/time.Second))) * time.Second
	return max(min(asked, a.grant.Until.Sub(n.o.now())), time.Second)
}

func (n *Node) renew(w http.ResponseWriter, r *http.Request, a *account, id string) {
	var ask client.NATRequest
	if !readBody(w, r, &ask) || ask.TTL < 1 {
		n.refuse(w, r, &client.Refusal{Reason: client.ReasonRequest})
		return
	}
	if !n.leases.belongs(id, a) {
		n.refuse(w, r, &client.Refusal{Reason: client.ReasonLease})
		return
	}
	l, err := n.o.NAT.Renew(r.Context(), id, n.lasts(a, ask.TTL))
	if err != nil {
		n.leases.drop(id)
		n.refuse(w, r, &client.Refusal{Reason: client.ReasonLease})
		return
	}
	n.leases.put(l, a)
	n.answer(w, answerLease(l))
}

func (n *Node) release(w http.ResponseWriter, r *http.Request, a *account, id string) {
	if !n.leases.belongs(id, a) {
		n.refuse(w, r, &client.Refusal{Reason: client.ReasonLease})
		return
	}
	n.leases.charge(r.Context(), n.o.NAT, id)
	n.leases.drop(id)
	if err := n.o.NAT.Release(r.Context(), id); err != nil {
		n.refuse(w, r, &client.Refusal{Reason: client.ReasonFailed, Detail: err.Error()})
		return
	}
	n.answer(w, struct{}{})
}

func answerLease(l NATLease) client.NATLease {
	return client.NATLease{ID: l.ID, Client: l.Rule.Client, Listen: l.Rule.Listen, To: l.Rule.To, Until: l.Until.UTC()}
}

func (l *leases) put(one NATLease, a *account) {
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

// charge has the account of a lease pay for what the kernel carried since it was asked last.
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

// sweep forgets leases that ended, and ends those whose grant was revoked or is used up.
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
			_ = table.Release(ctx, id) // it ends by itself in any case
		}
	}
}

func (l *leases) copy() map[string]lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	held := make(map[string]lease, len(l.of))
	for id, one := range l.of {
		held[id] = one
	}
	return held
}

// releaseAll ends all leases.
func (l *leases) releaseAll(table NAT) error {
	ctx, cancel := context.WithTimeout(context.Background(), patienceRequest)
	defer cancel()
	var failed error
	for id := range l.copy() {
		l.drop(id)
		failed = errors.Join(failed, table.Release(ctx, id))
	}
	return failed
}
