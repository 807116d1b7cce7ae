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
	out, err := lookup(to.Addr(), "", netip.Addr{}, p.mark)
	if err != nil {
		return nil, noRoute("this machine", to.Addr(), err)
	}
	b := binding{local: netip.AddrPortFrom(out.source, 0), mark: p.mark}
	return openFlow(ctx, Spec{Name: "system", Arg: out.device}, b, to, func() error {
		now, err := lookup(to.Addr(), "", netip.Addr{}, p.mark)
		switch {
		case err != nil:
			return noRoute("this machine", to.Addr(), err)
		case now.source != out.source:
			return &Error{What: "this machine", Why: "its way to " + to.Addr().String() + " changed"}
		}
		return nil
	})
}

// Dial connects as the routes say.
func (p System) Dial(ctx context.Context, to Target) (net.Conn, error) {
	return dialHere(ctx, to, func(ctx context.Context, at netip.AddrPort) (net.Conn, error) {
		return dialStream(ctx, binding{mark: p.mark}, at)
	})
}

// Describe says what the path is.
func (p System) Describe() Info {
	return Info{Name: "system", Kind: "system", Observer: "system", Ready: true,
		Claim: "leaves as this machine's own routes say"}
}
