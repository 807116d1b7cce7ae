package targets

import (
	"errors"
	"net"
	"net/netip"
	"syscall"
)

// bufferSize is the size of each socket buffer in bytes.
const bufferSize = 512 << 10

// DialUDP opens a socket that receives from one target only and never sends fragments (RFC 9298, section 5).
func DialUDP(to netip.AddrPort) (*net.UDPConn, error) {
	d := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
		var err error
		controlErr := raw.Control(func(fd uintptr) { err = neverFragment(fd, to.Addr().Is4()) })
		return errors.Join(controlErr, err)
	}}
	conn, err := d.Dial("udp", to.String())
	if err != nil {
		return nil, err
	}
	socket := conn.(*net.UDPConn)
	return socket, errors.Join(socket.SetReadBuffer(bufferSize), socket.SetWriteBuffer(bufferSize))
}
