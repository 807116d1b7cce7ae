package path

import (
	"encoding/binary"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"
)

// Layout of struct sock_extended_err (linux/errqueue.h), followed by the sockaddr of the offender.
const (
	extendedErrLen = 16
	originLocal    = 1
	originICMP     = 2
	originICMP6    = 3
)

// parseExtendedError reads the control message of one entry of a socket's error queue.
func parseExtendedError(data []byte) (*Unreachable, bool) {
	if len(data) < extendedErrLen {
		return nil, false
	}
	u := &Unreachable{Errno: syscall.Errno(binary.NativeEndian.Uint32(data))}
	origin := data[4]
	if origin != originLocal && origin != originICMP && origin != originICMP6 {
		return nil, false
	}
	if u.Errno == unix.EMSGSIZE {
		u.MTU = int(binary.NativeEndian.Uint32(data[8:]))
	}
	if origin != originLocal {
		u.By = parseOffender(data[extendedErrLen:])
	}
	return u, true
}

func parseOffender(sockaddr []byte) netip.Addr {
	if len(sockaddr) < 2 {
		return netip.Addr{}
	}
	switch family := binary.NativeEndian.Uint16(sockaddr); {
	case family == unix.AF_INET && len(sockaddr) >= unix.SizeofSockaddrInet4:
		return netip.AddrFrom4([4]byte(sockaddr[4:8]))
	case family == unix.AF_INET6 && len(sockaddr) >= unix.SizeofSockaddrInet6:
		return netip.AddrFrom16([16]byte(sockaddr[8:24])).Unmap()
	}
	return netip.Addr{}
}

// drainErrors empties the error queue of fd and gives the last entry, or nil.
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
