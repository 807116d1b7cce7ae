package random

import (
	"errors"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// limitUnsent bounds the bytes that wait in the kernel before they are sent for the first time. What is sent and not yet
// acknowledged does not count, so the connection stays as fast as it is.
func limitUnsent(c net.Conn, bytes int) error {
	socket, ok := c.(syscall.Conn)
	if !ok {
		return errors.ErrUnsupported
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, bytes)
	})
	return errors.Join(err, failed)
}
