package path

import (
	"net"
	"net/netip"
)

// Family is the network, of "tcp" or "udp", to listen in at HOST:PORT. Package net takes 0.0.0.0 there for the addresses of
// both families; here it is what it says, all of IPv4. Without a host it is both.
func Family(network, at string) string {
	host, _, err := net.SplitHostPort(at)
	if err != nil {
		return network
	}
	if a, err := netip.ParseAddr(host); err == nil && a.Is4() {
		return network + "4"
	}
	return network
}
