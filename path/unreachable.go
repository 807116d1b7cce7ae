package path

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"
)

// Unreachable is what the network or this machine said of datagrams that could not be delivered: an ICMP message
// (RFC 792, RFC 4443), or the like.
type Unreachable struct {
	Errno syscall.Errno
	// By is the router or host that said so; invalid where it was this machine.
	By netip.Addr
	// MTU is the largest packet in bytes that the path carries, where that was the reason; else 0.
	MTU int
}

// Error says what happened in the words of a person.
func (u *Unreachable) Error() string {
	by := "this machine"
	if u.By.IsValid() {
		by = u.By.String()
	}
	switch u.Errno {
	case unix.ECONNREFUSED:
		return "nothing listens on that port, says " + by
	case unix.EMSGSIZE:
		return fmt.Sprintf("datagram too large for the path, which carries packets of %d bytes, says %s", u.MTU, by)
	case unix.EACCES, unix.EPERM:
		return "forbidden by a packet filter, says " + by
	}
	return fmt.Sprintf("%v, says %s", u.Errno, by)
}

// Unwrap gives the errno.
func (u *Unreachable) Unwrap() error { return u.Errno }

// FromServer reports whether the answer shows that datagrams do reach the server's machine.
func (u *Unreachable) FromServer(server netip.Addr) bool {
	return u.Errno == unix.ECONNREFUSED && u.By == server
}

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
