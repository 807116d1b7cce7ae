package socks5

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"

	"heddle/internal/socks5"
)

// The numbers of RFC 1928 and RFC 1929.
const (
	version     = 5
	authVersion = 1

	methodNone         = 0x00
	methodPassword     = 0x02
	methodUnacceptable = 0xff

	commandConnect   = 1
	commandAssociate = 3

	addressIPv4 = 1
	addressName = 3
	addressIPv6 = 4

	longestField = 255 // of a user, a password or a name, which have one byte for their length

	headerIPv4 = 3 + 1 + 4 + 2  // of a datagram, in bytes
	headerIPv6 = 3 + 1 + 16 + 2 // the same
)

// refusal is the REP field of an answer that is not 0 (RFC 1928, section 6).
type refusal byte

const (
	refusedByRules    = refusal(socks5.NotAllowed)
	networkUnreach    = refusal(socks5.NetworkUnreachable)
	hostUnreach       = refusal(socks5.HostUnreachable)
	connectionRefused = refusal(socks5.Refused)
	ttlExpired        = refusal(socks5.TimedOut)
	commandUnknown    = refusal(socks5.CommandUnknown)
	addressUnknown    = refusal(socks5.AddressUnknown)
)

// Error says what the proxy said.
func (r refusal) Error() string {
	switch r {
	case 1:
		return "the proxy says: general failure"
	case refusedByRules:
		return "the proxy's rules forbid it"
	case networkUnreach:
		return "the proxy says: network unreachable"
	case hostUnreach:
		return "the proxy says: host unreachable"
	case connectionRefused:
		return "the proxy says: connection refused"
	case ttlExpired:
		return "the proxy says: no answer in time"
	case commandUnknown:
		return "the proxy does not know the command"
	case addressUnknown:
		return "the proxy does not carry this kind of address"
	}
	return fmt.Sprintf("the proxy refuses with code %d", byte(r))
}

var (
	errNotSOCKS    = errors.New("it does not speak SOCKS version 5")
	errMethod      = errors.New("it wants a kind of authentication that was not offered")
	errWantsUser   = errors.New("it wants a user and a password")
	errPassword    = errors.New("it does not accept the user and password")
	errNamedRelay  = errors.New("it names its relay by a host name, not by an address")
	errHeader      = errors.New("no header of a SOCKS datagram")
	errFragment    = errors.New("a fragment of a SOCKS datagram")
	errAddressType = errors.New("unknown type of address")
)

// credentials are a user and password of RFC 1929.
type credentials struct{ user, password string }

// negotiate agrees on a method of authentication and goes through it. c is nil where there is no secret: then nothing
// but "no authentication" is offered.
func negotiate(rw io.ReadWriter, c *credentials) error {
	greeting := []byte{version, 1, methodNone}
	if c != nil {
		greeting = []byte{version, 2, methodNone, methodPassword}
	}
	if _, err := rw.Write(greeting); err != nil {
		return err
	}
	var chosen [2]byte
	if _, err := io.ReadFull(rw, chosen[:]); err != nil {
		return err
	}
	switch {
	case chosen[0] != version:
		return errNotSOCKS
	case chosen[1] == methodNone:
		return nil
	case chosen[1] == methodPassword && c != nil:
		return authenticate(rw, *c)
	case chosen[1] == methodUnacceptable && c == nil, chosen[1] == methodPassword:
		return errWantsUser
	}
	return errMethod
}

// authenticate goes through RFC 1929.
func authenticate(rw io.ReadWriter, c credentials) error {
	message := append([]byte{authVersion, byte(len(c.user))}, c.user...)
	message = append(append(message, byte(len(c.password))), c.password...)
	if _, err := rw.Write(message); err != nil {
		return err
	}
	var answer [2]byte
	if _, err := io.ReadFull(rw, answer[:]); err != nil {
		return err
	}
	switch {
	case answer[0] != authVersion:
		return errNotSOCKS
	case answer[1] != 0:
		return errPassword
	}
	return nil
}

// request sends a command and gives the address in the answer, which may be unspecified.
func request(rw io.ReadWriter, command byte, to netip.AddrPort) (netip.AddrPort, error) {
	if _, err := rw.Write(appendAddress([]byte{version, command, 0}, to)); err != nil {
		return netip.AddrPort{}, err
	}
	return readReply(rw)
}

// readReply reads the answer to a request, and no byte more.
func readReply(r io.Reader) (netip.AddrPort, error) {
	var head [5]byte // to the first byte of the address, which is the length of a name
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return netip.AddrPort{}, err
	}
	if head[0] != version {
		return netip.AddrPort{}, errNotSOCKS
	}
	length := 0
	switch head[3] {
	case addressIPv4:
		length = 4
	case addressIPv6:
		length = 16
	case addressName:
		length = 1 + int(head[4])
	default:
		if head[1] != 0 {
			return netip.AddrPort{}, refusal(head[1])
		}
		return netip.AddrPort{}, errAddressType
	}
	address := append(make([]byte, 0, 1+longestField+2), head[4])[:length+2]
	if _, err := io.ReadFull(r, address[1:]); err != nil {
		if head[1] != 0 { // some close at once
			err = refusal(head[1])
		}
		return netip.AddrPort{}, err
	}
	if head[1] != 0 {
		return netip.AddrPort{}, refusal(head[1])
	}
	port := binary.BigEndian.Uint16(address[length:])
	if head[3] == addressName {
		a, err := netip.ParseAddr(string(address[1:length]))
		if err != nil || a.Zone() != "" {
			return netip.AddrPort{}, errNamedRelay
		}
		return netip.AddrPortFrom(a.Unmap(), port), nil
	}
	a, _ := netip.AddrFromSlice(address[:length])
	return netip.AddrPortFrom(a.Unmap(), port), nil
}

// appendAddress appends ATYP, address and port (RFC 1928, section 5).
func appendAddress(b []byte, to netip.AddrPort) []byte {
	a := to.Addr()
	if a.Is4() {
		four := a.As4()
		b = append(append(b, addressIPv4), four[:]...)
	} else {
		sixteen := a.As16()
		b = append(append(b, addressIPv6), sixteen[:]...)
	}
	return binary.BigEndian.AppendUint16(b, to.Port())
}

// headerTo is what stands before each datagram to one server (RFC 1928, section 7).
func headerTo(to netip.AddrPort) []byte { return appendAddress([]byte{0, 0, 0}, to) }

// parseHeader reads the header of a datagram from the proxy: who sent it, and how long the header is. A source given as
// a name is taken where it is an address written out; who else that is cannot be known.
func parseHeader(b []byte) (from netip.AddrPort, length int, err error) {
	if len(b) < 5 || b[0] != 0 || b[1] != 0 {
		return netip.AddrPort{}, 0, errHeader
	}
	if b[2] != 0 {
		return netip.AddrPort{}, 0, errFragment
	}
	start, end := 4, 0
	switch b[3] {
	case addressIPv4:
		end = start + 4
	case addressIPv6:
		end = start + 16
	case addressName:
		start, end = 5, 5+int(b[4])
	default:
		return netip.AddrPort{}, 0, errAddressType
	}
	if len(b) < end+2 {
		return netip.AddrPort{}, 0, errHeader
	}
	var a netip.Addr
	if b[3] == addressName {
		if a, err = netip.ParseAddr(string(b[start:end])); err != nil || a.Zone() != "" {
			return netip.AddrPort{}, 0, errAddressType
		}
	} else {
		a, _ = netip.AddrFromSlice(b[start:end])
	}
	return netip.AddrPortFrom(a.Unmap(), binary.BigEndian.Uint16(b[end:])), end + 2, nil
}

// splitAddress reads HOST:PORT strictly.
func splitAddress(text string) (host string, port uint16, ok bool) {
	at := strings.LastIndexByte(text, ':')
	if at <= 0 {
		return "", 0, false
	}
	host = text[:at]
	if strings.HasPrefix(host, "[") != strings.HasSuffix(host, "]") || strings.HasPrefix(host, "[") == !strings.Contains(host, ":") {
		return "", 0, false
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	n, err := strconv.ParseUint(text[at+1:], 10, 16)
	if err != nil || n == 0 || host == "" || len(host) > 253 || strings.ContainsAny(host, " \t/@") {
		return "", 0, false
	}
	return host, uint16(n), true
}
