package gateway

import (
	"net"
	"net/netip"
	"slices"

	"github.com/pires/go-proxyproto"
)

// Introduced returns a listener whose connections have the addresses of clients, as gateways tell by the PROXY protocol. Gateways come
// from these networks. A connection from elsewhere is a client's own, whatever it says. At a unix socket gateways pass connections
// themselves.
func Introduced(l net.Listener, gateways []netip.Prefix) net.Listener {
	if l.Addr().Network() == "unix" {
		return passed(l)
	}
	return &proxyproto.Listener{Listener: l, ReadHeaderTimeout: helloFor, ConnPolicy: func(o proxyproto.ConnPolicyOptions) (proxyproto.Policy, error) {
		from, err := netip.ParseAddrPort(o.Upstream.String())
		if err == nil && slices.ContainsFunc(gateways, func(p netip.Prefix) bool { return p.Contains(from.Addr().Unmap()) }) {
			return proxyproto.REQUIRE, nil
		}
		return proxyproto.SKIP, nil
	}}
}
