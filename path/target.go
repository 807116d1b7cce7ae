package path

import (
	"net"
	"net/netip"

	"heddle/internal/socks5"
)

// Target is the destination of a stream: an address or a host name, and a port. A tunnel never uses this machine's resolver:
// names are looked up at its far end or inside it, so that no network before it learns them, or refused. A path that is no
// tunnel uses this machine's resolver, as other programs do, unless package path/resolve asks over the path.
type Target = socks5.Target

// At returns the target for an address.
func At(a netip.AddrPort) Target { return Target{Addr: a.Addr(), Port: a.Port()} }

// HostPort returns the target for a host, which may be an address as text.
func HostPort(host string, port uint16) (Target, error) {
	t, err := socks5.NewTarget(host, port)
	if err != nil || port == 0 {
		return Target{}, &Error{What: net.JoinHostPort(host, "?"), Why: "it is no host and port", Hint: "such as files.example:4470"}
	}
	return t, nil
}
