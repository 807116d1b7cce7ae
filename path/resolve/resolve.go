// Package resolve finds the addresses of a server's name: by this machine's resolver, or by a path that is told. A [Name]
// is looked up again and again without its user waiting for it. Each step is bounded in time, also the opening of a tunnel
// that a question goes through.
//
// Do not use it on the goroutine that sends, but by [Name.Ask].
package resolve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"heddle/path"
)

const (
	systemPatience = 10 * time.Second // of this machine's resolver
	reachPatience  = 10 * time.Second // for a path to open flows to all candidates
)

// MaxKnown is how many addresses a name is known to have had at most.
const MaxKnown = 32

// Server is a server as a person names it.
type Server struct {
	Host string
	Port uint16
}

// Parse reads HOST:PORT.
func Parse(to string) (Server, error) {
	host, text, err := net.SplitHostPort(to)
	var port uint64
	if err == nil {
		port, err = strconv.ParseUint(text, 10, 16)
	}
	if err != nil || port == 0 || host == "" {
		return Server{}, &path.Error{What: fmt.Sprintf("server %q", to), Why: "not a host and a port",
			Hint: "write vpn.example.com:51820, 192.0.2.1:51820 or [2001:db8::1]:51820"}
	}
	return Server{host, uint16(port)}, nil
}

// Address is the server's address where it was given as one, else the zero address.
func (s Server) Address() netip.Addr {
	a, _ := netip.ParseAddr(s.Host)
	return a.Unmap()
}

// At gives the addresses the server's port.
func (s Server) At(all []netip.Addr) (out []netip.AddrPort) {
	for _, a := range all {
		out = append(out, netip.AddrPortFrom(a.Unmap(), s.Port))
	}
	return out
}

// System asks this machine's resolver for a server's addresses.
func System(ctx context.Context, s Server) ([]netip.AddrPort, error) {
	if a := s.Address(); a.IsValid() {
		return s.At([]netip.Addr{a}), nil
	}
	ctx, cancel := context.WithTimeout(ctx, systemPatience)
	defer cancel()
	addresses, err := net.DefaultResolver.LookupNetIP(ctx, "ip", s.Host)
	if err == nil && len(addresses) == 0 {
		err = errors.New("no addresses")
	}
	if err != nil {
		return nil, &path.Error{What: "server " + s.Host, Why: "its name does not resolve", Hint: "check the name and this machine's DNS, or write the address", Err: err}
	}
	return s.At(addresses), nil
}

// Reach counts one for each of the candidates that the path can open a flow to. It opens them one after the other, on the
// goroutine of the caller, and gives up once that took too long.
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

// Best is the first of the candidates with the highest count; the zero address where there is no candidate.
func Best(candidates []netip.AddrPort, counts []int) (best netip.AddrPort, count int) {
	if len(candidates) == 0 {
		return netip.AddrPort{}, 0
	}
	most := slices.Max(counts)
	return candidates[slices.Index(counts, most)], most
}

// Found is what a lookup found.
type Found struct {
	Addresses []netip.AddrPort
	// Best is the one to use, where the lookup chose one.
	Best netip.AddrPort
	Err  error
}

// Name is a server's name, which is looked up while its user does something else.
type Name struct {
	lookup func(context.Context) Found
	found  chan Found
	work   sync.WaitGroup

	mu     sync.Mutex
	asking bool
	known  []netip.AddrPort // that it has or had, the newest last
}

// NewName makes a name that is looked up by lookup.
func NewName(lookup func(context.Context) Found) *Name {
	return &Name{lookup: lookup, found: make(chan Found)}
}

// Ask begins to look the name up, unless that is under way. [Name.Found] tells what was found, until ctx ends.
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

// Follow looks the name up each time that so long has passed, until ctx ends.
func (n *Name) Follow(ctx context.Context, every time.Duration) {
	n.work.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				n.Ask(ctx)
			}
		}
	})
}

// Found gives what the lookups found, each once.
func (n *Name) Found() <-chan Found { return n.found }

// Wait waits until no lookup is under way. The contexts of all must have ended, or what they found been taken.
func (n *Name) Wait() { n.work.Wait() }

// Note keeps the addresses as candidates, and reports whether the name never had some of them before.
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

// Known are the addresses that the name has or had.
func (n *Name) Known() []netip.AddrPort {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.known)
}
