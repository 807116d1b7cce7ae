package keeper

import (
	"errors"

	"golang.org/x/sys/unix"
)

// Heard returns a function that reports whether packets arrived at a socket since its last call, or the socket is over. It ends
// the sending of a stream.
func Heard(fd int, stream bool) func() (more, over bool) {
	if stream {
		return grows(fd)
	}
	return hears(fd)
}

// hears discards received datagrams of a UDP socket, and reports whether there were any.
func hears(fd int) func() (more, over bool) {
	return func() (more, over bool) {
		for range 4096 {
			_, _, err := unix.Recvfrom(fd, nil, unix.MSG_DONTWAIT|unix.MSG_TRUNC)
			if errors.Is(err, unix.EAGAIN) {
				return more, false
			}
			more = true
		}
		return true, false
	}
}

// grows reports whether more data arrived on a TCP socket. It reads nothing, so that the window closes and the sender stops.
// Only then is the reset, which the kernel sends because of unread data, the last packet of both sides.
func grows(fd int) func() (more, over bool) {
	had, ended := -1, false
	return func() (more, over bool) {
		info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		switch {
		case err != nil || info.State == unix.BPF_TCP_TIME_WAIT || info.State == unix.BPF_TCP_CLOSE:
			return false, true // both sides closed the connection (RFC 9293, section 3.3.2)
		case info.State == unix.BPF_TCP_SYN_SENT:
			return false, false // shutdown would forget the connection at once, and the peer's answer would have no socket
		case !ended:
			ended = unix.Shutdown(fd, unix.SHUT_WR) == nil
		}
		waiting, err := unix.IoctlGetInt(fd, unix.SIOCINQ)
		if err != nil {
			return false, true
		}
		more, had = waiting != had, waiting
		return more, false
	}
}
