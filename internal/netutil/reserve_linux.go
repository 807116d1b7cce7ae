package netutil

import (
	"context"
	"errors"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Reserve returns an address of the loopback where nobody listens, and whose port the kernel gives to nobody until ctx ends. Only a
// server that asks for this very port, with SO_REUSEADDR as servers do, can listen there.
func Reserve(ctx context.Context) (netip.AddrPort, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return netip.AddrPort{}, err
	}
	context.AfterFunc(ctx, func() { unix.Close(fd) })
	loopback := [4]byte{127, 0, 0, 1}
	// The option follows, so that the port was nobody's before.
	err = errors.Join(unix.Bind(fd, &unix.SockaddrInet4{Addr: loopback}), unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1))
	at, nameErr := unix.Getsockname(fd)
	if err := errors.Join(err, nameErr); err != nil {
		return netip.AddrPort{}, err
	}
	return netip.AddrPortFrom(netip.AddrFrom4(loopback), uint16(at.(*unix.SockaddrInet4).Port)), nil
}
