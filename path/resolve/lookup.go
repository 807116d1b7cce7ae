package resolve

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"heddle/internal/dial"
	"heddle/path"
)

const (
	ownPatience    = 6 * time.Second // for the answer that a path gets itself
	sharedPatience = time.Second     // before an answer that another path got will do
)

// OverPath looks a name up as this machine's resolver does, in the hosts file and then at the nameservers, but asks these over
// one path. The path's network and the nameservers see the name; no other network does.
func OverPath(ctx context.Context, p path.Path, name string) ([]netip.Addr, error) {
	return overPath(ctx, p, name, &chooser{behind: Nameservers()})
}

// mostAddresses limits the addresses of a tunnel's own server: each may be tried.
const mostAddresses = 8

// Saved is [OverPath] at the nameservers that this machine has now, for the servers of tunnels below a full tunnel, which may
// replace them later. Names are complete: the search list of the full tunnel is not for the networks outside it.
func Saved() func(ctx context.Context, p path.Path, name string) ([]netip.Addr, error) {
	return asker(Nameservers())
}

func asker(nameservers []netip.AddrPort) func(context.Context, path.Path, string) ([]netip.Addr, error) {
	return func(ctx context.Context, p path.Path, name string) ([]netip.Addr, error) {
		ctx, cancel := context.WithTimeout(ctx, ownPatience)
		defer cancel()
		addrs, err := overPath(ctx, p, strings.TrimSuffix(name, ".")+".", &chooser{behind: nameservers, only: true})
		return addrs[:min(len(addrs), mostAddresses)], err
	}
}

func overPath(ctx context.Context, p path.Path, name string, c *chooser) ([]netip.Addr, error) {
	addrs, err := resolver(p, c.choose).LookupNetIP(ctx, "ip", name)
	if err != nil {
		return nil, c.explain(strings.TrimSuffix(name, "."), p.Describe().Name, err)
	}
	for i := range addrs {
		addrs[i] = addrs[i].Unmap()
	}
	return addrs, nil
}

// resolver is package net's, with sockets over a path to those nameservers that choose puts in place of the system's.
func resolver(p path.Path, choose func(address string) (netip.AddrPort, error)) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		at, err := choose(address)
		if err != nil {
			return nil, err
		}
		if !strings.HasPrefix(network, "udp") {
			return path.Dial(ctx, p, path.At(at))
		}
		flow, err := path.Open(ctx, p, at)
		if err != nil {
			return nil, err
		}
		return &question{PacketConn: path.PacketConn(flow, at), at: net.UDPAddrFromAddrPort(at)}, nil
	}}
}

// chooser replaces a nameserver on this machine, which would ask by ways of its own.
type chooser struct {
	behind []netip.AddrPort // those that it asks
	only   bool             // replaces all others too
	asked  atomic.Int64
	stub   atomic.Bool // there was one, and nothing is known to be behind it
}

func (c *chooser) choose(address string) (netip.AddrPort, error) {
	at, err := netip.ParseAddrPort(address)
	if err != nil || !at.Addr().IsLoopback() && !c.only || slices.Contains(c.behind, at) {
		return at, err
	}
	if len(c.behind) == 0 {
		c.stub.Store(true)
		return at, errors.New("this machine's nameserver is a program on it")
	}
	return c.behind[int(c.asked.Add(1)-1)%len(c.behind)], nil
}

// explain says why a path got no address.
func (c *chooser) explain(name, way string, err error) error {
	failed := &path.Error{What: "server " + name, Why: "path " + way + " gets no address for its name", Err: err,
		Hint: "is the name spelled right, and can the path reach this machine's nameservers? The address in place of the name needs none"}
	if c.stub.Load() {
		failed.Hint = "this machine's nameserver is a program on it, which asks by networks that were not chosen: write the address in place of the name"
	}
	return failed
}

// question is a socket to one nameserver, which package net sends datagrams by.
type question struct {
	net.PacketConn
	at *net.UDPAddr
}

func (q *question) Read(p []byte) (int, error) {
	n, _, err := q.ReadFrom(p)
	return n, err
}

func (q *question) Write(p []byte) (int, error) { return q.WriteTo(p, q.at) }
func (q *question) RemoteAddr() net.Addr        { return q.at }

// Names looks up names for the streams of several paths that are no tunnels: each path asks for itself, so that none can mislead
// another one. A path that gets no answer takes one that another path got.
type Names struct {
	mu    sync.Mutex
	known map[string][]netip.Addr // the newest answer that some path got
}

// NewNames knows no names yet.
func NewNames() *Names { return &Names{known: map[string][]netip.Addr{}} }

// Over is the path p, whose streams go to names that are looked up over p.
func (n *Names) Over(p path.Path) path.Path { return &namedPath{Path: p, names: n} }

// namedPath carries streams alone.
type namedPath struct {
	path.Path
	names *Names
}

// Dial connects over the path.
func (p *namedPath) Dial(ctx context.Context, to path.Target) (net.Conn, error) {
	single := func(ctx context.Context, at netip.AddrPort) (net.Conn, error) {
		return path.Dial(ctx, p.Path, path.At(at))
	}
	return dial.Dialer[net.Conn]{Single: single, Lookup: p.lookup}.Dial(ctx, to.Host(), to.Port)
}

func (p *namedPath) lookup(ctx context.Context, name string) ([]netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, ownPatience)
	defer cancel()
	return p.names.get(name, func() ([]netip.Addr, error) { return OverPath(ctx, p.Path, name) })
}

// get waits for the answer that a path gets itself, or for long enough.
func (n *Names) get(name string, ask func() ([]netip.Addr, error)) ([]netip.Addr, error) {
	var addrs []netip.Addr
	var err error
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		addrs, err = ask()
	}()
	select {
	case <-asked:
	case <-time.After(sharedPatience):
		if known := n.newest(name); len(known) > 0 {
			return known, nil
		}
		<-asked
	}
	if err != nil {
		if known := n.newest(name); len(known) > 0 {
			return known, nil
		}
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.known[name] = addrs
	return addrs, nil
}

func (n *Names) newest(name string) []netip.Addr {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.known[name]
}
