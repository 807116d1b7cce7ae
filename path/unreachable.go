package path

import (
	"fmt"
	"net/netip"
	"syscall"
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
	case syscall.ECONNREFUSED:
		return "nothing listens on that port, says " + by
	case syscall.EMSGSIZE:
		return fmt.Sprintf("datagram too large for the path, which carries packets of %d bytes, says %s", u.MTU, by)
	case syscall.EACCES, syscall.EPERM:
		return "forbidden by a packet filter, says " + by
	}
	return fmt.Sprintf("%v, says %s", u.Errno, by)
}

// Unwrap gives the errno.
func (u *Unreachable) Unwrap() error { return u.Errno }

// FromServer reports whether the answer shows that datagrams do reach the server's machine.
func (u *Unreachable) FromServer(server netip.Addr) bool {
	return u.Errno == syscall.ECONNREFUSED && u.By == server
}
