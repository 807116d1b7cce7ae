package peer

import (
	"context"
	"fmt"
	"net/netip"

	"heddle/internal/netutil"
)

// LoopbackCloud is a cloud on ports of 127.0.0.1, which needs no privileges.
type LoopbackCloud struct {
	*Cloud
	Gateway, Nameserver, Tenants netip.AddrPort
}

// NewLoopbackCloud makes its files in dir, which it makes. public is the address of the gateway that its nameserver gives.
func NewLoopbackCloud(ctx context.Context, on Devices, dir string, public netip.Addr) (*LoopbackCloud, error) {
	c, err := NewCloud(ctx, on, dir, public)
	if err != nil {
		return nil, err
	}
	ports, err := FreePorts(ctx, 5)
	if err != nil {
		return nil, err
	}
	l := &LoopbackCloud{Cloud: c, Gateway: ports[0], Nameserver: ports[1], Tenants: ports[2]}
	var pairs []string
	for i, was := range []string{":443", ":53", ":4481", "127.0.0.1:4480", "127.0.0.1:4482"} {
		pairs = append(pairs, fmt.Sprintf("%q", was), fmt.Sprintf("%q", ports[i]))
	}
	return l, c.Replace(pairs...)
}

// FreePorts returns different ports of 127.0.0.1 where programs can listen with TCP, and which are given to nobody else until ctx ends.
func FreePorts(ctx context.Context, n int) (free []netip.AddrPort, err error) {
	for range n {
		at, err := netutil.Reserve(ctx)
		if err != nil {
			return nil, err
		}
		free = append(free, at)
	}
	return free, nil
}
