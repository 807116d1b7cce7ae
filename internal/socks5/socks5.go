// Package socks5 is the server's side of SOCKS5 as it goes over the wire (RFC 1928): what a client says, and the answers.
// Only clients that can do without authentication are understood.
//
// Do not use it as a proxy: it opens no connection.
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
	methodUnacceptable = 0xff

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

// The answers to a request.
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

// Target is where a client wants to go: an address or a name.
type Target struct {
	Addr netip.Addr // invalid where Name is set
	Name string
	Port uint16
}

// String gives HOST:PORT.
func (t Target) String() string {
	if t.Name != "" {
		return fmt.Sprintf("%s:%d", t.Name, t.Port)
	}
	return netip.AddrPortFrom(t.Addr, t.Port).String()
}

// What is wrong with a request or a datagram.
var (
	ErrVersion     = errors.New("not SOCKS version 5")
	ErrAddressType = errors.New("unknown type of address")
	ErrShort       = errors.New("datagram is too short")
	ErrFragment    = errors.New("fragments are not supported")
)

// Negotiate reads the client's greeting and answers it. It reports whether the client may go on: it can do without
// authentication.
func Negotiate(r io.Reader, w io.Writer) (bool, error) {
	plain, err := readMethods(r)
	if err != nil {
		return false, err
	}
	method := byte(methodNone)
	if !plain {
		method = methodUnacceptable
	}
	_, err = w.Write([]byte{Version, method})
	return plain && err == nil, err
}

// readMethods reads the client's greeting and reports whether it can do without authentication.
func readMethods(r io.Reader) (bool, error) {
	var head [2]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return false, err
	}
	if head[0] != Version {
		return false, ErrVersion
	}
	methods := make([]byte, head[1])
	if _, err := io.ReadFull(r, methods); err != nil {
		return false, err
	}
	for _, m := range methods {
		if m == methodNone {
			return true, nil
		}
	}
	return false, nil
}

// ReadRequest reads a command and its target (RFC 1928, section 4).
func ReadRequest(r io.Reader) (command byte, to Target, err error) {
	var head [3]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, Target{}, err
	}
	if head[0] != Version {
		return 0, Target{}, ErrVersion
	}
	to, err = readTarget(r)
	return head[1], to, err
}

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
	if host == "" || len(host) > 253 {
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

// appendAddress appends ATYP, address and port.
func appendAddress(b []byte, a netip.AddrPort) []byte {
	addr := a.Addr().Unmap()
	if !addr.IsValid() {
		addr = netip.IPv4Unspecified()
	}
	kind := byte(addressIPv4)
	if addr.Is6() {
		kind = addressIPv6
	}
	b = append(append(b, kind), addr.AsSlice()...)
	return binary.BigEndian.AppendUint16(b, a.Port())
}

// WriteReply answers a request. bound is where the server listens or sends from.
func WriteReply(w io.Writer, code Reply, bound netip.AddrPort) error {
	_, err := w.Write(appendAddress([]byte{Version, byte(code), 0}, bound))
	return err
}

// ParseDatagram takes a client's UDP datagram apart (RFC 1928, section 7). payload shares b's memory.
func ParseDatagram(b []byte) (to Target, payload []byte, err error) {
	if len(b) < 4 {
		return Target{}, nil, ErrShort
	}
	if b[2] != 0 {
		return Target{}, nil, ErrFragment
	}
	r := &sliceReader{b[3:]}
	to, err = readTarget(r)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = ErrShort
	}
	return to, r.left, err
}

// sliceReader reads from a slice and leaves the rest to be had.
type sliceReader struct{ left []byte }

func (r *sliceReader) Read(p []byte) (int, error) {
	if len(r.left) == 0 {
		return 0, io.EOF
	}
	n := copy(p, r.left)
	r.left = r.left[n:]
	return n, nil
}

// AppendDatagramHeader appends the header of a datagram to the client, which came from from.
func AppendDatagramHeader(b []byte, from netip.AddrPort) []byte {
	return appendAddress(append(b, 0, 0, 0), from)
}
