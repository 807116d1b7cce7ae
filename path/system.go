package path

import (
	"context"
	"net"
	"net/netip"
)

// System is the way that this machine's own routes give: what a tunnel without a base rides.
type System struct{ mark uint32 }

// NewSystem makes the path that follows this machine's own routes, whatever they are at each moment.
func NewSystem(mark uint32) System { return System{mark} }

// Open opens a socket as the routes say now; the flow fails its check once they say otherwise.
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

// Dial connects as the routes say.
func (p System) Dial(ctx context.Context, to Target) (net.Conn, error) {
	return dialFrom(ctx, func(netip.Addr) (binding, error) { return binding{mark: p.mark}, nil }, to)
}

// Describe says what the path is.
func (p System) Describe() Info {
	return Info{Name: "system", Kind: "system", Observer: "system", Ready: true,
		Claim: "leaves as this machine's own routes say"}
}
