// Package dial tries the allowed addresses of a host in turn, within one deadline. The caller connects to one address.
package dial

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"time"
)

// ErrNone means that there is no address, or no allowed one.
var ErrNone = errors.New("there is no address that may be dialled")

// atLeast is the minimum time for one address if that much is left, as in [net.Dialer].
const atLeast = 2 * time.Second

// First calls single with each address until a call succeeds, and returns its result or the last error. Each address gets an
// equal share of the time until the deadline of ctx.
func First[A, C any](ctx context.Context, to []A, single func(context.Context, A) (C, error)) (made C, err error) {
	err = ErrNone
	for i, a := range to {
		if made, err = attempt(ctx, a, len(to)-i, single); err == nil || ctx.Err() != nil {
			break
		}
	}
	return made, err
}

func attempt[A, C any](ctx context.Context, to A, left int, single func(context.Context, A) (C, error)) (C, error) {
	if until, ok := ctx.Deadline(); ok && left > 1 {
		remaining := time.Until(until)
		// An attempt with all of the remaining time uses ctx itself, so that no other one starts at the deadline.
		if share := max(remaining/time.Duration(left), atLeast); share < remaining {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, share)
			defer cancel()
		}
	}
	return single(ctx, to)
}

// Dialer connects to hosts by name or address.
type Dialer[C any] struct {
	Single  func(context.Context, netip.AddrPort) (C, error)             // connects to one address
	Lookup  func(ctx context.Context, name string) ([]netip.Addr, error) // nil means [Lookup]
	Allowed func(netip.AddrPort) bool                                    // nil allows all; also asked for the addresses of names
	Most    int                                                          // limit of addresses per name; 0 means no limit
}

// Dial connects to the first address of a host that answers.
func (d Dialer[C]) Dial(ctx context.Context, host string, port uint16) (none C, err error) {
	lookup := d.Lookup
	if a, err := netip.ParseAddr(host); err == nil {
		lookup = func(context.Context, string) ([]netip.Addr, error) { return []netip.Addr{a}, nil }
	} else if lookup == nil {
		lookup = Lookup
	}
	addrs, err := lookup(ctx, host)
	if err != nil {
		return none, err
	}
	var to []netip.AddrPort
	for _, a := range addrs {
		at := netip.AddrPortFrom(a.Unmap(), port)
		if (d.Allowed == nil || d.Allowed(at)) && (d.Most == 0 || len(to) < d.Most) {
			to = append(to, at)
		}
	}
	return First(ctx, to, d.Single)
}

// Lookup asks the system resolver for the addresses of a name, and returns at least one. It returns an address unchanged.
func Lookup(ctx context.Context, name string) ([]netip.Addr, error) {
	if a, err := netip.ParseAddr(name); err == nil {
		return []netip.Addr{a.Unmap()}, nil
	}
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", name)
	if err == nil && len(addrs) == 0 {
		err = &net.DNSError{Err: "the name has no address", Name: name, IsNotFound: true}
	}
	for i := range addrs {
		addrs[i] = addrs[i].Unmap()
	}
	return addrs, err
}
