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

// targetLength returns the length of ATYP, address and port (RFC 1928, section 5), whose first two bytes are given.
func targetLength(kind, next byte) (int, error) {
	switch kind {
	case addressIPv4:
		return 1 + 4 + 2, nil
	case addressIPv6:
		return 1 + 16 + 2, nil
	case addressName:
		return 1 + 1 + int(next) + 2, nil
	}
	return 0, ErrAddressType
}

// readTarget reads ATYP, address and port, and no byte more.
func readTarget(r io.Reader) (Target, error) {
	var b [2 + LongestField + 2]byte
	if _, err := io.ReadFull(r, b[:1]); err != nil {
		return Target{}, err
	}
	if _, err := targetLength(b[0], 0); err != nil {
		return Target{}, err
	}
	if _, err := io.ReadFull(r, b[1:2]); err != nil {
		return Target{}, err
	}
	length, _ := targetLength(b[0], b[1])
	if _, err := io.ReadFull(r, b[2:length]); err != nil {
		return Target{}, err
	}
	t, _, err := parseTarget(b[:length])
	return t, err
}

// parseTarget parses ATYP, address and port at the start of b, and returns what follows them.
func parseTarget(b []byte) (t Target, rest []byte, err error) {
	if len(b) < 2 {
		return t, nil, ErrShort
	}
	length, err := targetLength(b[0], b[1])
	if err != nil {
		return t, nil, err
	}
	if len(b) < length {
		return t, nil, ErrShort
	}
	t.Port = binary.BigEndian.Uint16(b[length-2:])
	if b[0] == addressName {
		t, err = NewTarget(string(b[2:length-2]), t.Port)
		return t, b[length:], err
	}
	addr, _ := netip.AddrFromSlice(b[1 : length-2])
	t.Addr = addr.Unmap()
	return t, b[length:], nil
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
