package path

import (
	"encoding/binary"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// sockaddr is a struct sockaddr_in or sockaddr_in6 in the kernel's format.
type sockaddr [unix.SizeofSockaddrInet6]byte

// put writes an address for an IPv6 or IPv4 socket, and returns its length.
func (s *sockaddr) put(to netip.AddrPort, six bool) (int, error) {
	*s = sockaddr{}
	binary.BigEndian.PutUint16(s[2:], to.Port())
	addr := to.Addr().Unmap()
	if !six {
		if !addr.Is4() {
			return 0, unix.EAFNOSUPPORT
		}
		binary.NativeEndian.PutUint16(s[:], unix.AF_INET)
		*(*[4]byte)(s[4:]) = addr.As4()
		return unix.SizeofSockaddrInet4, nil
	}
	if !addr.Is6() {
		return 0, unix.EAFNOSUPPORT
	}
	binary.NativeEndian.PutUint16(s[:], unix.AF_INET6)
	*(*[16]byte)(s[8:]) = addr.As16()
	scope, err := scopeOf(addr.Zone())
	binary.NativeEndian.PutUint32(s[24:], scope)
	return unix.SizeofSockaddrInet6, err
}

// addrPort returns the address that the kernel wrote, or the zero value if it is neither IPv4 nor IPv6.
func (s *sockaddr) addrPort() netip.AddrPort {
	port := binary.BigEndian.Uint16(s[2:])
	switch binary.NativeEndian.Uint16(s[:]) {
	case unix.AF_INET:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(s[4:8])), port)
	case unix.AF_INET6:
		addr := netip.AddrFrom16([16]byte(s[8:24])).Unmap()
		if scope := binary.NativeEndian.Uint32(s[24:]); scope != 0 {
			addr = addr.WithZone(zoneOf(scope))
		}
		return netip.AddrPortFrom(addr, port)
	}
	return netip.AddrPort{}
}

// pointer returns the address for struct msghdr.
func (s *sockaddr) pointer() *byte { return (*byte)(unsafe.Pointer(s)) }

// scopeOf returns the index of the device of a link-local address (RFC 4007, section 11).
func scopeOf(zone string) (uint32, error) {
	if zone == "" {
		return 0, nil
	}
	if n, err := strconv.ParseUint(zone, 10, 32); err == nil {
		return uint32(n), nil
	}
	device, err := net.InterfaceByName(zone)
	if err != nil {
		return 0, unix.ENODEV
	}
	return uint32(device.Index), nil
}

// zones caches device names by index: each datagram of a link-local peer needs one.
var zones sync.Map // uint32 -> string

func zoneOf(scope uint32) string {
	if name, ok := zones.Load(scope); ok {
		return name.(string)
	}
	device, err := net.InterfaceByIndex(int(scope))
	if err != nil {
		return strconv.FormatUint(uint64(scope), 10)
	}
	zones.Store(scope, device.Name)
	return device.Name
}
