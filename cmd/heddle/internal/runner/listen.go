package runner

import (
	"context"
	"errors"
	"net"
	"syscall"

	"heddle/internal/netutil"
	"heddle/path"
)

// Listen opens the TCP port of a flag. MPTCP is optional, since its additional addresses are not paths of ours.
func Listen(ctx context.Context, flag, address string, mptcp bool) (net.Listener, error) {
	if file, ok := netutil.UnixFile(address); ok {
		l, err := netutil.ListenUnix(file)
		if err != nil {
			return nil, cannotListen(flag, address, err)
		}
		return l, nil
	}
	var c net.ListenConfig
	c.SetMultipathTCP(mptcp)
	l, err := c.Listen(ctx, path.Family("tcp", address), address)
	if err != nil {
		return nil, cannotListen(flag, address, err)
	}
	return l, nil
}

// ListenUDP opens the UDP socket that a flag names.
func ListenUDP(flag, address string) (*net.UDPConn, error) {
	at, err := net.ResolveUDPAddr(path.Family("udp", address), address)
	if err != nil {
		return nil, cannotListen(flag, address, err)
	}
	if at.IP == nil {
		at.IP = net.IPv6unspecified
	}
	return path.ListenUDP(at.AddrPort())
}

func cannotListen(flag, address string, err error) error {
	hint := "write --" + flag + " [HOST]:PORT, such as 127.0.0.1:1080"
	_, file := netutil.UnixFile(address)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		hint = "another program listens there: choose another place"
	case file:
		hint = "the directory has to be there, and this program has to be able to write to it"
	}
	return &path.Error{What: flag + " " + address, Why: "it cannot listen there", Err: err, Hint: hint}
}

// Exposed reports whether other machines can connect to a port.
func Exposed(l net.Listener) bool {
	a, ok := l.Addr().(*net.TCPAddr)
	return ok && !a.IP.IsLoopback()
}

// Reachable returns the address for peers. If it is uncertain, HOST is a placeholder for the user to replace.
func Reachable(a net.Addr) string {
	host, port, err := net.SplitHostPort(a.String())
	if ip := net.ParseIP(host); err == nil && ip != nil && ip.IsUnspecified() {
		return net.JoinHostPort("HOST", port)
	}
	return a.String()
}
