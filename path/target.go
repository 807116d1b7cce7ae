package path

import (
	"net"
	"net/netip"

	"heddle/internal/socks5"
)

// Target is where a stream goes: an address or a host name, and a port.
//
// A tunnel has a name looked up at its far end, or inside: no network in front of it learns the name. One that cannot do
// so refuses names; none of them asks this machine's resolver. A path that is no tunnel asks that resolver, as other
// programs do.
type Target = socks5.Target

// At is the target at an address.
func At(a netip.AddrPort) Target { return Target{Addr: a.Addr(), Port: a.Port()} }

// HostPort is the target at a host, which may be an address written out.
func HostPort(host string, port uint16) (Target, error) {
	t, err := socks5.NewTarget(host, port)
	if err != nil || port == 0 {
		return Target{}, &Error{What: net.JoinHostPort(host, "?"), Why: "it is no host and port", Hint: "such as files.example:4470"}
	}
	return t, nil
}
