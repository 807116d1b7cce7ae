package connectudp

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// listenBuffer is the size of each socket buffer, in bytes.
const listenBuffer = 7 << 20

// warnBuffers sets the socket's buffers and warns if the kernel gives less: a busy proxy then loses packets.
func (p *Proxy) warnBuffers() {
	socket, ok := p.socket.(syscall.Conn)
	if !ok {
		return
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return
	}
	got := 0
	raw.Control(func(fd uintptr) {
		for force, plain := range map[int]int{unix.SO_RCVBUFFORCE: unix.SO_RCVBUF, unix.SO_SNDBUFFORCE: unix.SO_SNDBUF} {
			if unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, force, listenBuffer) != nil {
				unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, plain, listenBuffer)
			}
		}
		got, _ = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF)
	})
	if got < listenBuffer {
		p.log.Warn("the kernel's buffers are small: a busy proxy will lose packets", "bytes", got,
			"hint", "sysctl -w net.core.rmem_max=7500000 net.core.wmem_max=7500000")
	}
}
