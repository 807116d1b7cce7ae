// Package socks5 reads and writes the messages of SOCKS5 (RFC 1928) with user and password (RFC 1929), for clients and
// servers.
//
// It is no proxy: it opens no connections.
package socks5

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
)

// The numbers of RFC 1928.
const (
	Version = 5 // the first byte of what a client says

	methodNone         = 0x00
	methodPassword     = 0x02
	methodUnacceptable = 0xff

	authVersion = 1 // of RFC 1929
	// LongestField is the most bytes that a user, a password or a name may have: one byte tells their length.
	LongestField = 255

	addressIPv4 = 1
	addressName = 3
	addressIPv6 = 4
)

// The commands that are told apart (RFC 1928, section 4).
const (
	Connect      = 1
	UDPAssociate = 3
)

// Reply is the REP field of RFC 1928, section 6.
type Reply byte

// The answers to a request. Those other than [Succeeded] are errors too.
const (
	Succeeded          Reply = 0
	Failure            Reply = 1
	NotAllowed         Reply = 2
	NetworkUnreachable Reply = 3
	HostUnreachable    Reply = 4
	Refused            Reply = 5
	TimedOut           Reply = 6
	CommandUnknown     Reply = 7
	AddressUnknown     Reply = 8
)

// Error says what the answer means.
func (r Reply) Error() string {
	switch r {
	case Failure:
		return "the proxy says: general failure"
	case NotAllowed:
		return "the proxy's rules forbid it"
	case NetworkUnreachable:
		return "the proxy says: network unreachable"
	case HostUnreachable:
		return "the proxy says: host unreachable"
	case Refused:
		return "the proxy says: connection refused"
	case TimedOut:
		return "the proxy says: no answer in time"
	case CommandUnknown:
		return "the proxy does not know the command"
	case AddressUnknown:
		return "the proxy does not carry this kind of address"
	}
	return fmt.Sprintf("the proxy refuses with code %d", byte(r))
}

// Target is where a client wants to go: an address or a name.
type Target struct {
	Addr netip.Addr // invalid where Name is set
	Name string
	Port uint16
}

// Host gives the name or the address.
func (t Target) Host() string {
	if t.Name != "" {
		return t.Name
	}
	return t.Addr.String()
}

// Network makes a target a [net.Addr].
func (Target) Network() string { return "tcp" }

// String gives HOST:PORT.
func (t Target) String() string {
	if t.Name != "" {
		return fmt.Sprintf("%s:%d", t.Name, t.Port)
	}
	return netip.AddrPortFrom(t.Addr, t.Port).String()
}

// What is wrong with a request or a datagram.
var (
	ErrVersion     = errors.New("it does not speak SOCKS version 5")
	ErrAddressType = errors.New("unknown type of address")
	errNoName      = fmt.Errorf("%w: the host name is empty", ErrAddressType)
	ErrShort       = errors.New("datagram is too short")
	ErrFragment    = errors.New("fragments are not supported")
)

// readTarget reads ATYP, address and port (RFC 1928, section 5).
func readTarget(r io.Reader) (Target, error) {
	var kind [1]byte
	if _, err := io.ReadFull(r, kind[:]); err != nil {
		return Target{}, err
	}
	length := 0
	switch kind[0] {
	case addressIPv4:
		length = 4
	case addressIPv6:
		length = 16
	case addressName:
		var n [1]byte
		if _, err := io.ReadFull(r, n[:]); err != nil {
			return Target{}, err
		}
		length = int(n[0])
	default:
		return Target{}, ErrAddressType
	}
	data := make([]byte, length+2)
	if _, err := io.ReadFull(r, data); err != nil {
		return Target{}, err
	}
	t := Target{Port: binary.BigEndian.Uint16(data[length:])}
	if kind[0] == addressName {
		return NewTarget(string(data[:length]), t.Port)
	}
	addr, _ := netip.AddrFromSlice(data[:length])
	t.Addr = addr.Unmap()
	return t, nil
}

// NewTarget takes a host, which may be an address written out. It fails with [ErrAddressType] where it is no host.
func NewTarget(host string, port uint16) (Target, error) {
	t := Target{Port: port}
	if addr, err := netip.ParseAddr(host); err == nil && addr.Zone() == "" {
		t.Addr = addr.Unmap()
		return t, nil
	}
	if host == "" {
		return Target{}, errNoName
	}
	if len(host) > 253 {
		return Target{}, ErrAddressType
	}
	for _, c := range []byte(host) {
		if c <= ' ' || c >= 0x7f {
			return Target{}, ErrAddressType
		}
	}
	t.Name = host
	return t, nil
}

// AppendTarget appends ATYP, address or name, and port. An invalid address is written as 0.0.0.0.
func AppendTarget(b []byte, t Target) []byte {
	addr := t.Addr.Unmap()
	switch {
	case t.Name != "":
		b = append(append(b, addressName, byte(len(t.Name))), t.Name...)
	case !addr.IsValid():
		b = append(b, addressIPv4, 0, 0, 0, 0)
	case addr.Is4():
		four := addr.As4()
		b = append(append(b, addressIPv4), four[:]...)
	default:
		sixteen := addr.As16()
		b = append(append(b, addressIPv6), sixteen[:]...)
	}
	return binary.BigEndian.AppendUint16(b, t.Port)
}

// appendAddress appends ATYP, address and port.
func appendAddress(b []byte, a netip.AddrPort) []byte {
	return AppendTarget(b, Target{Addr: a.Addr(), Port: a.Port()})
}
