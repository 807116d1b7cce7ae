// Package socks5 reads and writes messages of SOCKS5 (RFC 1928, RFC 1929) for clients and servers. It opens no connections.
package socks5

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
)

// Numbers of RFC 1928.
const (
	Version = 5 // the first byte of a client's messages

	methodNone         = 0x00
	methodPassword     = 0x02
	methodUnacceptable = 0xff

	authVersion  = 1   // of RFC 1929
	LongestField = 255 // bytes of a user, password or name: its length field has one byte

	addressIPv4 = 1
	addressName = 3
	addressIPv6 = 4
)

// Commands (RFC 1928, section 4).
const (
	Connect      = 1
	UDPAssociate = 3
)

// Reply is the REP field of RFC 1928, section 6.
type Reply byte

// Replies to a request. All but [Succeeded] are also errors.
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

// Target is the destination of a client: an address or a name.
type Target struct {
	Addr netip.Addr // invalid where Name is set
	Name string
	Port uint16
}

// Host returns the name or the address.
func (t Target) Host() string {
	if t.Name != "" {
		return t.Name
	}
	return t.Addr.String()
}

// Network makes Target a [net.Addr].
func (Target) Network() string { return "tcp" }

// String returns HOST:PORT.
func (t Target) String() string {
	if t.Name != "" {
		return fmt.Sprintf("%s:%d", t.Name, t.Port)
	}
	return netip.AddrPortFrom(t.Addr, t.Port).String()
}

// Errors of a request or a datagram.
var (
	ErrVersion     = errors.New("it does not speak SOCKS version 5")
	ErrAddressType = errors.New("unknown type of address")
	errNoName      = fmt.Errorf("%w: the host name is empty", ErrAddressType)
	ErrShort       = errors.New("datagram is too short")
	ErrFragment    = errors.New("fragments are not supported")
)

// targetLength returns the length of ATYP, address and port (RFC 1928, section 5), from their first two bytes.
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

// parseTarget parses ATYP, address and port at the start of b, and returns the remaining bytes.
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

// NewTarget returns the target for a host: a name or an address as text. For other text it fails with [ErrAddressType].
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

// AppendTarget appends ATYP, address or name, and port. An invalid address becomes 0.0.0.0.
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

func appendAddress(b []byte, a netip.AddrPort) []byte {
	return AppendTarget(b, Target{Addr: a.Addr(), Port: a.Port()})
}
