package gateway

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// acceptLate is how long the kernel keeps a client back that says nothing, in seconds. One that does not speak until then is taken too, and counts.
const acceptLate = 1

// acceptHellos has a listener return connections whose clients have said something, so that the gateway need not wait for that once more.
func acceptHellos(l net.Listener) {
	of, ok := l.(syscall.Conn)
	if !ok {
		return
	}
	raw, err := of.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_DEFER_ACCEPT, acceptLate) })
}
