package probe

import (
	"net"

	"golang.org/x/sys/unix"
)

// acknowledged returns how many bytes the other end's kernel has acknowledged, of SYN and FIN too.
func acknowledged(c *net.TCPConn) (n int) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) {
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			n = int(info.Bytes_acked)
		}
	})
	return n
}
