// Package resolve finds the addresses of a server's name, with this machine's resolver or over a given path, and which of
// them several paths agree on. A [Name] is looked up repeatedly in the background. Every step has a time limit, including the
// opening of a tunnel. Lookups block: a goroutine that sends must use [Name.Ask].
package resolve

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"heddle/internal/dial"
	"heddle/internal/netutil"
	"heddle/path"
)

const (
	systemPatience = 10 * time.Second // of this machine's resolver
	reachPatience  = 10 * time.Second // to open flows to all candidates
)

// MaxKnown is the maximum number of addresses that a [Name] remembers.
const MaxKnown = 32

// Server is a server as the user wrote it.
type Server struct {
	Host string
	Port uint16
}

// Parse parses HOST:PORT.
func Parse(to string) (Server, error) {
	host, port, err := netutil.SplitHostPort(to)
	if err != nil {
		return Server{}, &path.Error{What: fmt.Sprintf("server %q", to), Why: "not a host and a port",
			Hint: "write vpn.example.com:51820, 192.0.2.1:51820 or [2001:db8::1]:51820"}
	}
	return Server{host, port}, nil
}

// Address returns the host if it is an address, or else the zero address.
func (s Server) Address() netip.Addr {
	a, _ := netip.ParseAddr(s.Host)
	return a.Unmap()
}

// At combines each address with the server's port.
func (s Server) At(all []netip.Addr) (out []netip.AddrPort) {
	for _, a := range all {
		out = append(out, netip.AddrPortFrom(a.Unmap(), s.Port))
	}
	return out
}

// System asks this machine's resolver for a server's addresses.
func System(ctx context.Context, s Server) ([]netip.AddrPort, error) {
	ctx, cancel := context.WithTimeout(ctx, systemPatience)
	defer cancel()
	addresses, err := dial.Lookup(ctx, s.Host)
	if err != nil {
		return nil, &path.Error{What: "server " + s.Host, Why: "its name does not resolve", Hint: "check the name and this machine's DNS, or write the address", Err: err}
	}
	return s.At(addresses), nil
}

// Reach increments the count of each candidate that the path can open a flow to, in turn and within one time limit.
func Reach(ctx context.Context, p path.Path, candidates []netip.AddrPort, counts []int) {
	ctx, cancel := context.WithTimeout(ctx, reachPatience)
	defer cancel()
	for i, to := range candidates {
		if flow, err := path.Open(ctx, p, to); err == nil {
			flow.Close()
			counts[i]++
		}
	}
}

// Best returns the first candidate with the highest count, or the zero address if there is none.
func Best(candidates []netip.AddrPort, counts []int) (best netip.AddrPort, count int) {
	if len(candidates) == 0 {
		return netip.AddrPort{}, 0
	}
	most := slices.Max(counts)
	return candidates[slices.Index(counts, most)], most
}

// Found is the result of a lookup.
type Found struct {
	Addresses []netip.AddrPort
	Err       error
}

// Name is a server's name that is looked up in the background.
type Name struct {
	lookup func(context.Context) Found
	found  chan Found
	work   sync.WaitGroup

	mu     sync.Mutex
	asking bool
	known  []netip.AddrPort // current and former addresses, the newest last
}

func NewName(lookup func(context.Context) Found) *Name {
	return &Name{lookup: lookup, found: make(chan Found)}
}

// Ask starts a lookup unless one is running. [Name.Found] delivers the result, until ctx ends.
func (n *Name) Ask(ctx context.Context) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.asking {
		return
	}
	n.asking = true
	n.work.Go(func() {
		found := n.lookup(ctx)
		n.mu.Lock()
		n.asking = false
		n.mu.Unlock()
		select {
		case n.found <- found:
		case <-ctx.Done():
		}
	})
}

// Follow looks the name up at each interval, until ctx ends.
func (n *Name) Follow(ctx context.Context, every time.Duration) {
	n.work.Go(func() {
		for netutil.Sleep(ctx, every) == nil {
			n.Ask(ctx)
		}
	})
}

// Found returns the channel with the results of lookups.
func (n *Name) Found() <-chan Found { return n.found }

// Wait blocks until no lookup runs. Before, the contexts of all lookups must have ended, or their results been received.
func (n *Name) Wait() { n.work.Wait() }

// Note remembers addresses of the name. It reports whether some of them are new.
func (n *Name) Note(addresses []netip.AddrPort) (more bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, a := range addresses {
		if !slices.Contains(n.known, a) {
			n.known, more = append(n.known, a), true
		}
	}
	n.known = n.known[max(0, len(n.known)-MaxKnown):]
	return more
}

// Known returns the current and former addresses of the name.
func (n *Name) Known() []netip.AddrPort {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.known)
}
