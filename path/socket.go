package path

import (
	"context"
	"net"
	"net/netip"
	"syscall"
)

// udpSocket is the part of a [Socket] that all systems share.
type udpSocket struct {
	conn  *net.UDPConn
	raw   syscall.RawConn
	local netip.AddrPort
}

// Listen opens a socket, bound to local, for datagrams from any sender.
func Listen(local netip.AddrPort) (*Socket, error) {
	return openSocket(context.Background(), binding{local: local})
}

// bindUDP opens a socket at the local address of b, after set has tied it to a device.
func bindUDP(ctx context.Context, b binding, set func(fd int) error) (s udpSocket, err error) {
	network := "udp4"
	if b.local.Addr().Is6() {
		network = "udp6"
	}
	config := net.ListenConfig{Control: beforeBinding(set)}
	packet, err := config.ListenPacket(ctx, network, b.local.String())
	if err != nil {
		return s, err
	}
	s.conn = packet.(*net.UDPConn)
	at := s.conn.LocalAddr().(*net.UDPAddr).AddrPort()
	s.local = netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
	if s.raw, err = s.conn.SyscallConn(); err != nil {
		s.conn.Close()
	}
	return s, err
}

// beforeBinding returns a control function for package net that calls set before bind, so that no packet leaves elsewhere.
func beforeBinding(set func(fd int) error) func(_, _ string, raw syscall.RawConn) error {
	return func(_, _ string, raw syscall.RawConn) (err error) {
		if controlErr := raw.Control(func(fd uintptr) { err = set(int(fd)) }); controlErr != nil {
			return controlErr
		}
		return err
	}
}

// SyscallConn returns the raw socket, for other options.
func (s *udpSocket) SyscallConn() (syscall.RawConn, error) { return s.raw, nil }

func (s *udpSocket) LocalAddr() netip.AddrPort { return s.local }

// Close closes the socket. A blocked Receive returns [net.ErrClosed].
func (s *udpSocket) Close() error { return s.conn.Close() }
