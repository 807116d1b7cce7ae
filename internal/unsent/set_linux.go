package unsent

import "golang.org/x/sys/unix"

// Set bounds the unsent bytes of a socket.
func Set(fd uintptr, bytes int) error {
	return unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, bytes)
}
