package path

import (
	"fmt"
	"net/netip"
	"syscall"
)

// Unreachable reports undeliverable datagrams: an ICMP message (RFC 792, RFC 4443), or an error of this machine.
type Unreachable struct {
	Errno syscall.Errno
	By    netip.Addr // reporting router or host; invalid if it was this machine
	MTU   int        // largest packet in bytes that the path carries, if that was the reason
}

func (u *Unreachable) Error() string {
	by := "this machine"
	if u.By.IsValid() {
		by = u.By.String()
	}
	if u.Errno == syscall.EPERM && !u.By.IsValid() {
		return "a packet filter of this machine forbids it, as the guard or kill switch of `heddle up` does: take a path through that tunnel, or end it"
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

func (u *Unreachable) Unwrap() error { return u.Errno }

// FromServer reports whether the error shows that datagrams reach the server's machine.
func (u *Unreachable) FromServer(server netip.Addr) bool {
	return u.Errno == syscall.ECONNREFUSED && u.By == server
}
