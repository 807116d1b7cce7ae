// Package dial tries the addresses of a host in turn, within one deadline. It leaves out addresses that are not allowed. The
// caller says how to connect to one address.
package dial

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"time"
)

// ErrNone says that there is no address to dial, or none that is allowed.
var ErrNone = errors.New("there is no address that may be dialled")

// atLeast is the least time for one address, if so much is left, as in [net.Dialer].
const atLeast = 2 * time.Second

// First calls single with each address until one call succeeds, and returns its result, or the last error. Each address has
// an equal share of the time that is left until the deadline of ctx, so that none uses up the time of the others.
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
		// An attempt that may take all that remains ends with ctx itself, so that no other one begins in the same moment.
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
	// Single connects to one address.
	Single func(context.Context, netip.AddrPort) (C, error)
	// Lookup gives the addresses of a name; nil is [Lookup].
	Lookup func(ctx context.Context, name string) ([]netip.Addr, error)
	// Allowed says which addresses may be dialled; nil allows all. It is asked about the addresses of names too.
	Allowed func(netip.AddrPort) bool
	// Most is how many addresses of one name are tried; 0 is all.
	Most int
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

// Lookup asks this machine's resolver for the addresses of a name, and returns at least one. It returns an address as it is.
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
