package path

import (
	"context"
	"net"
	"net/netip"
)

// System is the path by this machine's own routes, which tunnels without a base ride.
type System struct{ mark uint32 }

// NewSystem returns the path by this machine's own routes, as they are at each moment.
func NewSystem(mark uint32) System { return System{mark} }

// Open opens a socket by the current routes. The flow fails its check once they change for it.
func (p System) Open(ctx context.Context, to netip.AddrPort) (Flow, error) {
	return openFlow(ctx, Spec{Name: "system", Arg: "this machine"}, p.binding, to)
}

func (p System) binding(to netip.Addr) (binding, error) {
	out, err := lookup(to, "", netip.Addr{}, p.mark)
	if err != nil {
		return binding{}, noRoute("this machine", to, err)
	}
	return binding{local: netip.AddrPortFrom(out.source, 0), mark: p.mark}, nil
}

func (p System) Dial(ctx context.Context, to Target) (net.Conn, error) {
	return dialFrom(ctx, func(netip.Addr) (binding, error) { return binding{mark: p.mark}, nil }, to)
}

func (p System) Describe() Info {
	return Info{Name: "system", Kind: "system", Observer: "system", Ready: true, Fragments: true,
		Claim: "leaves as this machine's own routes say"}
}
