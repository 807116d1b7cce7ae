package path

import (
	"encoding/binary"
	"syscall"

	"golang.org/x/sys/unix"
)

// extendedErrLen is the length of struct sock_extended_err (linux/errqueue.h). The offender's sockaddr follows it.
const extendedErrLen = 16

// parseExtendedError parses the control message of one entry of a socket's error queue.
func parseExtendedError(data []byte) (*Unreachable, bool) {
	if len(data) < extendedErrLen {
		return nil, false
	}
	u := &Unreachable{Errno: syscall.Errno(binary.NativeEndian.Uint32(data))}
	if u.Errno == unix.EMSGSIZE {
		u.MTU = int(binary.NativeEndian.Uint32(data[8:]))
	}
	switch data[4] {
	case unix.SO_EE_ORIGIN_LOCAL:
	case unix.SO_EE_ORIGIN_ICMP, unix.SO_EE_ORIGIN_ICMP6:
		var offender sockaddr
		copy(offender[:], data[extendedErrLen:])
		u.By = offender.addrPort().Addr().WithZone("")
	default:
		return nil, false
	}
	return u, true
}

// drainErrors empties the error queue of fd, and returns the last entry or nil.
func drainErrors(fd int) *Unreachable {
	var last *Unreachable
	payload, control := make([]byte, 64), make([]byte, 512)
	for range 64 {
		_, n, _, _, err := unix.Recvmsg(fd, payload, control, unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
		if err != nil {
			break
		}
		messages, err := unix.ParseSocketControlMessage(control[:n])
		if err != nil {
			continue
		}
		for _, m := range messages {
			isError := m.Header.Level == unix.IPPROTO_IP && m.Header.Type == unix.IP_RECVERR ||
				m.Header.Level == unix.IPPROTO_IPV6 && m.Header.Type == unix.IPV6_RECVERR
			if u, ok := parseExtendedError(m.Data); isError && ok {
				last = u
			}
		}
	}
	return last
}
