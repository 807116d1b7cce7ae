package path

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strconv"
	"syscall"
	"time"
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

// ListenUDP opens a socket for clients to come to. The unspecified address of IPv6 stands for both families, or the one
// that there is.
func ListenUDP(at netip.AddrPort) (*net.UDPConn, error) {
	where := net.UDPAddrFromAddrPort(at)
	if anyFamily(at) {
		where.IP = nil
	}
	c, err := net.ListenUDP(Family("udp", where.String()), where)
	if err != nil {
		return nil, noListen("UDP", at, err)
	}
	return c, nil
}

// ListenBoth takes one port for TCP and UDP, at an address as [ListenUDP] has it. Connections are plain TCP, with
// keep-alives. Where the system chooses the port, it is one that is free for TCP, and another program may have it for UDP:
// then another is taken.
func ListenBoth(ctx context.Context, at netip.AddrPort) (net.Listener, *net.UDPConn, error) {
	config := net.ListenConfig{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 10 * time.Second, Count: 4}}
	config.SetMultipathTCP(false)
	where := at.String()
	if anyFamily(at) {
		where = net.JoinHostPort("", strconv.Itoa(int(at.Port())))
	}
	for left := 16; ; left-- {
		l, err := config.Listen(ctx, Family("tcp", where), where)
		if err != nil {
			return nil, nil, noListen("TCP", at, err)
		}
		c, err := ListenUDP(netip.AddrPortFrom(at.Addr(), l.Addr().(*net.TCPAddr).AddrPort().Port()))
		if err == nil {
			return l, c, nil
		}
		l.Close()
		if at.Port() != 0 || left == 0 || !errors.Is(err, syscall.EADDRINUSE) {
			return nil, nil, err
		}
	}
}

func anyFamily(at netip.AddrPort) bool { return at.Addr().IsUnspecified() && at.Addr().Is6() }

func noListen(protocol string, at netip.AddrPort, err error) error {
	return &Error{What: "listen on " + at.String(), Why: "it cannot listen there", Err: err,
		Hint: "another program may have that " + protocol + " port, or the address may not be this machine's"}
}
