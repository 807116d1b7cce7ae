// Package lease holds a port at each of several overlay nodes in mode nat for one TCP stream of the kernel: it takes, renews
// and releases the leases.
//
// With [Options.BySource], if ports cannot tell the nodes apart, it also keeps nftables rules on this machine that choose
// the node by source address; this needs CAP_NET_ADMIN. A stream that Heddle carries itself (path node:) needs no lease.
package lease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"heddle/identity"
	"heddle/internal/netutil"
	"heddle/overlay/client"
	"heddle/overlay/nat"
	"heddle/path"
)

// TTL is how long a node translates after this process has died. Leases are renewed every third of it.
const TTL = 30 * time.Second

// A renewal that fails is tried again long before the lease ends: one lost connection must not cost the path.
const (
	renewPatience = TTL / 6
	renewAgain    = TTL / 15
)

// Options describe the leases.
type Options struct {
	Identity identity.Identity
	To       netip.AddrPort // the peer
	BySource bool           // rules here choose the node by source address; the stream connects to To itself
	Log      *slog.Logger
}

// node is the part of a [client.Client] that a lease needs.
type node interface {
	Lease(ctx context.Context, r client.NATRequest) (client.NATLease, error)
	Renew(ctx context.Context, l client.NATLease, ttl time.Duration) (client.NATLease, error)
	Release(ctx context.Context, l client.NATLease) error
	Close()
}

// Member is one path of the stream, through a node.
type Member struct {
	Name   string
	Device string // device that the packets must leave by; empty: by the routes

	rides bool // it rides another path
	node  node
	seen  *seenDialer
	held  client.NATLease
	local nat.Rule // at this machine, with BySource
}

// At returns where this machine connects to for the node to forward.
func (m *Member) At() netip.AddrPort {
	return netip.AddrPortFrom(m.seen.remote.Addr(), m.held.Listen)
}

// From returns the address from which this machine reaches the node.
func (m *Member) From() netip.Addr { return m.seen.local.Addr() }

// Set holds the leases of one stream.
type Set struct {
	Members []*Member

	o        Options
	local    func() (rules, error) // this machine's, for BySource
	stop     context.CancelFunc    // ends the renewals
	renewals sync.WaitGroup
}

// rules is what leases need of a [nat.Table].
type rules interface {
	Lease(r nat.Rule, ttl time.Duration) (nat.Lease, error)
	Renew(r nat.Rule, ttl time.Duration) (nat.Lease, error)
	Release(r nat.Rule) error
}

// Take leases a port at the node of each path in via, which may ride paths in beside. On an error it holds nothing.
func Take(ctx context.Context, via, beside []path.Spec, o Options) (*Set, error) {
	s := &Set{o: o, local: localRules, stop: func() {}}
	for _, spec := range via {
		m, err := member(spec, slices.Concat(via, beside), o.Identity)
		if err != nil {
			s.Release()
			return nil, err
		}
		s.Members = append(s.Members, m)
	}
	if err := s.take(ctx); err != nil {
		s.Release()
		return nil, err
	}
	return s, nil
}

func member(spec path.Spec, all []path.Spec, id identity.Identity) (*Member, error) {
	if spec.Kind != client.Scheme {
		return nil, &path.Error{What: "path " + spec.Name, Why: "the kernel's MPTCP goes by nodes in mode nat, and this is " + spec.Kind + ":",
			Hint: "take node: paths, or --backend stripe, which goes by any kind"}
	}
	base, err := baseOf(spec, all)
	if err != nil {
		return nil, err
	}
	pass, err := client.LoadPass(spec.Arg)
	if err != nil {
		return nil, err
	}
	seen := &seenDialer{Path: base}
	asker, err := client.New(pass, id, seen)
	if err != nil {
		return nil, err
	}
	return &Member{Name: spec.Name, rides: spec.Base != "", node: asker, seen: seen}, nil
}

// baseOf returns what a node's path rides. The kernel can send only from this machine's own addresses.
func baseOf(spec path.Spec, all []path.Spec) (path.Path, error) {
	if spec.Base == "" {
		return path.NewSystem(0), nil
	}
	i := slices.IndexFunc(all, func(s path.Spec) bool { return s.Name == spec.Base })
	if i < 0 {
		return nil, &path.Error{What: "path " + spec.Name, Why: fmt.Sprintf("it rides %s, which is not here", spec.Base), Hint: "define " + spec.Base + " with --path"}
	}
	if kind := all[i].Kind; kind != "src" && kind != "if" {
		return nil, &path.Error{What: "path " + spec.Name, Why: "the kernel's MPTCP cannot ride " + spec.Base + ", which is " + kind + ":", Hint: "take src: or if:, or --backend stripe"}
	}
	return path.New(all[i], path.Options{})
}

// take asks all nodes concurrently.
func (s *Set) take(ctx context.Context) error {
	if err := s.each(func(m *Member) error { return s.takeOne(ctx, m, 0) }); err != nil || !s.o.BySource {
		return err
	}
	table, err := s.local()
	if err != nil {
		return err
	}
	for i, m := range s.Members {
		if slices.ContainsFunc(s.Members[:i], func(other *Member) bool { return other.From() == m.From() }) {
			return &path.Error{What: "path " + m.Name, Why: fmt.Sprintf("it leaves from %v as another does, and --backend mptcp-nat tells paths apart by that", m.From()),
				Hint: "give each node's path a source address of its own to ride: --path x=src:ADDRESS --via a=node:NAME@x; or use --backend mptcp"}
		}
		rule := nat.Rule{Client: m.From(), Listen: s.o.To, To: m.At()}
		if _, err := table.Lease(rule, TTL); err != nil {
			return err
		}
		m.local = rule
	}
	return nil
}

// each calls do for all members concurrently.
func (s *Set) each(do func(*Member) error) error {
	errs := make([]error, len(s.Members))
	var doing sync.WaitGroup
	for i, m := range s.Members {
		doing.Go(func() { errs[i] = do(m) })
	}
	doing.Wait()
	return errors.Join(errs...)
}

// takeOne asks a node for a lease. If the node refuses, the member keeps what it holds.
func (s *Set) takeOne(ctx context.Context, m *Member, port uint16) error {
	held, err := m.node.Lease(ctx, client.NATRequest{To: s.o.To, Listen: port, TTL: int(TTL / time.Second)})
	if m.rides && m.Device == "" { // the kernel's packets must use the same device
		if device, known := strings.CutPrefix(m.seen.Describe().Observer, "if:"); known {
			m.Device = device
		}
	}
	if err != nil {
		return err
	}
	m.held = held
	if m.At().Addr().Is4() != s.o.To.Addr().Is4() {
		return &path.Error{What: "path " + m.Name, Why: fmt.Sprintf("its node is at %v and the peer at %v: one is IPv4, the other IPv6", m.At().Addr(), s.o.To.Addr())}
	}
	return nil
}

// localRules are this process's table.
var localRules = sync.OnceValues(func() (rules, error) { return nat.OpenLocal() })

// Keep renews the leases until done is closed, or [Set.Release]. While one cannot be kept its path dies, which the stream
// notices; it comes back with the lease.
func (s *Set) Keep(done <-chan struct{}) {
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	for _, m := range s.Members {
		s.renewals.Go(func() { s.keep(ctx, m) })
	}
	s.renewals.Go(func() {
		defer stop()
		select {
		case <-done:
		case <-ctx.Done():
		}
	})
}

// keep renews the lease of one member until ctx ends.
func (s *Set) keep(ctx context.Context, m *Member) {
	const regular = TTL / 3
	for wait := regular; netutil.Sleep(ctx, wait) == nil; {
		attempt, cancel := context.WithTimeout(ctx, renewPatience)
		err := s.renewOne(attempt, m)
		cancel()
		switch {
		case err == nil:
			wait = regular
		case ctx.Err() == nil:
			if wait == regular { // the first time
				s.o.Log.Warn("a lease is not renewed, and tried again", "path", m.Name, "err", err)
			}
			wait = renewAgain
		}
	}
}

func (s *Set) renewOne(ctx context.Context, m *Member) error {
	_, err := m.node.Renew(ctx, m.held, TTL)
	if refusal, ok := errors.AsType[*client.Refusal](err); ok && refusal.Reason == client.ReasonLease {
		// A restarted node has lost the owner of the lease that its kernel still holds. Or the lease ended.
		err = s.takeOne(ctx, m, m.held.Listen)
	}
	if !m.local.Client.IsValid() {
		return err
	}
	table, localErr := s.local()
	if localErr == nil {
		_, localErr = table.Renew(m.local, TTL)
	}
	if errors.Is(localErr, nat.ErrNoLease) { // as after this machine slept
		_, localErr = table.Lease(m.local, TTL)
	}
	return errors.Join(err, localErr)
}

// Release stops the renewals and ends the leases. Call it once.
func (s *Set) Release() {
	s.stop()
	s.renewals.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	_ = s.each(func(m *Member) error {
		defer m.node.Close()
		if m.local.Client.IsValid() {
			if table, err := s.local(); err == nil {
				_ = table.Release(m.local) // it expires anyway
			}
		}
		if m.held.ID != "" {
			_ = m.node.Release(ctx, m.held)
		}
		return nil
	})
}

// seenDialer records the addresses of a path's TCP connections.
type seenDialer struct {
	path.Path

	mu            sync.Mutex
	local, remote netip.AddrPort
}

func (d *seenDialer) Dial(ctx context.Context, to path.Target) (net.Conn, error) {
	c, err := path.Dial(ctx, d.Path, to)
	if err != nil {
		return nil, err
	}
	local, remote := netutil.AddrPort(c.LocalAddr()), netutil.AddrPort(c.RemoteAddr())
	if !local.IsValid() || !remote.IsValid() {
		c.Close()
		return nil, errors.New("it is no TCP of this machine's kernel")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.local.IsValid() {
		d.local, d.remote = local, remote
	}
	return c, nil
}
