// Package natnode gives an overlay node its mode nat: leases are rules in package nat's tables. Mode forward does not need
// it.
package natnode

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"heddle/overlay/client"
	"heddle/overlay/nat"
	"heddle/overlay/node"
)

// sweepEvery is how often the ends of connections are told that their lease is over.
const sweepEvery = 2 * time.Second

// table keeps a node's leases in the kernel only: a lease's name says what it is.
type table struct {
	*nat.Table
	log *slog.Logger

	mu      sync.Mutex
	counted time.Time
	bytes   map[nat.Rule]uint64
}

var _ interface {
	node.NAT
	node.Metered
} = (*table)(nil)

// Attach opens the tables and makes a node lease by them. stop closes them.
func Attach(ctx context.Context, to *node.Options, o nat.Options) (stop func(), err error) {
	o.Log = to.Log
	rules, err := nat.Open(o)
	if err != nil {
		return nil, err
	}
	t := &table{Table: rules, log: to.Log}
	to.NAT = t
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var sweeping sync.WaitGroup
	sweeping.Go(func() { t.sweep(ctx) })
	return func() {
		cancel()
		sweeping.Wait()
		if err := rules.Close(); err != nil {
			to.Log.Error("not all changes to this machine could be taken back", "err", err)
		}
	}, nil
}

func (t *table) sweep(ctx context.Context) {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	failed := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		err := t.Sweep()
		if err != nil && !failed {
			t.log.Warn("the nftables table cannot be tidied; leases end all the same", "err", err)
		}
		failed = err != nil
	}
}

// Lease makes a lease at the node's address that the request came to.
func (t *table) Lease(ctx context.Context, want client.NATLease, ttl time.Duration) (client.NATLease, error) {
	here, ok := ctx.Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return client.NATLease{}, errors.New("a lease needs the address that it was asked for at")
	}
	at, err := netip.ParseAddrPort(here.String())
	if err != nil {
		return client.NATLease{}, err
	}
	l, err := t.Table.Lease(nat.Rule{Client: want.Client, Listen: netip.AddrPortFrom(at.Addr(), want.Listen), To: want.To}, ttl)
	return natLease(l), err
}

// Renew makes a lease end ttl from now.
func (t *table) Renew(_ context.Context, id string, ttl time.Duration) (client.NATLease, error) {
	r, err := ruleOf(id)
	if err != nil {
		return client.NATLease{}, err
	}
	l, err := t.Table.Renew(r, ttl)
	return natLease(l), err
}

func (t *table) Release(_ context.Context, id string) error {
	r, err := ruleOf(id)
	if err != nil {
		return err
	}
	return t.Table.Release(r)
}

// Carried returns a lease's bytes both ways. It asks the kernel for all leases at once, and not for each anew.
func (t *table) Carried(_ context.Context, id string) (int64, error) {
	r, err := ruleOf(id)
	if err != nil {
		return 0, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if time.Since(t.counted) > time.Second {
		all, err := t.Leases()
		if err != nil {
			return 0, err
		}
		t.bytes, t.counted = map[nat.Rule]uint64{}, time.Now()
		for _, l := range all {
			t.bytes[l.Rule] = l.Bytes
		}
	}
	bytes, ok := t.bytes[r]
	if !ok {
		return 0, nat.ErrNoLease
	}
	return int64(bytes), nil
}

func natLease(l nat.Lease) client.NATLease {
	return client.NATLease{ID: idOf(l.Rule), Client: l.Client, Listen: l.Listen.Port(), To: l.To, Until: l.Until.UTC()}
}

// idOf names a rule by its content.
func idOf(r nat.Rule) string {
	text, _ := json.Marshal(r) // cannot fail for addresses
	return base64.RawURLEncoding.EncodeToString(text)
}

func ruleOf(id string) (r nat.Rule, err error) {
	text, err := base64.RawURLEncoding.DecodeString(id)
	if err != nil || json.Unmarshal(text, &r) != nil {
		return nat.Rule{}, nat.ErrNoLease
	}
	return r, nil
}
