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

// Family returns the network to listen on at HOST:PORT, for "tcp" or "udp". Package net takes 0.0.0.0 for both families;
// here it means IPv4 only. No host means both.
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

// ListenUDP opens a socket for clients. The unspecified IPv6 address means both families, or the available one.
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

// ListenBoth listens on one port for TCP, with keep-alives and without MPTCP, and for UDP; for the address see [ListenUDP].
// If the system chooses the port and its UDP port is taken, it tries another one.
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
