package proxy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
)

// The numbers of RFC 1928.
const (
	socksVersion = 5

	methodNone         = 0x00
	methodUnacceptable = 0xff

	commandConnect      = 1
	commandUDPAssociate = 3

	addressIPv4 = 1
	addressName = 3
	addressIPv6 = 4
)

// reply is the REP field of RFC 1928, section 6.
type reply byte

const (
	replySucceeded          reply = 0
	replyFailure            reply = 1
	replyNetworkUnreachable reply = 3
	replyHostUnreachable    reply = 4
	replyRefused            reply = 5
	replyTimeout            reply = 6
	replyCommandUnknown     reply = 7
	replyAddressUnknown     reply = 8
)

// target is where a client wants to go: an address or a name.
type target struct {
	addr netip.Addr // invalid where name is set
	name string
	port uint16
}

func (t target) String() string {
	if t.name != "" {
		return fmt.Sprintf("%s:%d", t.name, t.port)
	}
	return netip.AddrPortFrom(t.addr, t.port).String()
}

var (
	errVersion     = errors.New("not SOCKS version 5")
	errAddressType = errors.New("unknown type of address")
	errShort       = errors.New("datagram is too short")
	errFragment    = errors.New("fragments are not supported")
)

// readMethods reads the client's greeting and reports whether it can do without authentication.
func readMethods(r io.Reader) (bool, error) {
	var head [2]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return false, err
	}
	if head[0] != socksVersion {
		return false, errVersion
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

// readRequest reads a command and its target (RFC 1928, section 4).
func readRequest(r io.Reader) (command byte, to target, err error) {
	var head [3]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, target{}, err
	}
	if head[0] != socksVersion {
		return 0, target{}, errVersion
	}
	to, err = readTarget(r)
	return head[1], to, err
}

// readTarget reads ATYP, address and port (RFC 1928, section 5).
func readTarget(r io.Reader) (target, error) {
	var kind [1]byte
	if _, err := io.ReadFull(r, kind[:]); err != nil {
		return target{}, err
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
			return target{}, err
		}
		length = int(n[0])
	default:
		return target{}, errAddressType
	}
	data := make([]byte, length+2)
	if _, err := io.ReadFull(r, data); err != nil {
		return target{}, err
	}
	t := target{port: binary.BigEndian.Uint16(data[length:])}
	if kind[0] == addressName {
		return t.named(string(data[:length]))
	}
	addr, _ := netip.AddrFromSlice(data[:length])
	t.addr = addr.Unmap()
	return t, nil
}

// named fills in a host, which may be an address written out.
func (t target) named(host string) (target, error) {
	if addr, err := netip.ParseAddr(host); err == nil && addr.Zone() == "" {
		t.addr = addr.Unmap()
		return t, nil
	}
	if host == "" || len(host) > 253 {
		return target{}, errAddressType
	}
	for _, c := range []byte(host) {
		if c <= ' ' || c >= 0x7f {
			return target{}, errAddressType
		}
	}
	t.name = host
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

// writeReply answers a request. bound is where the server listens or sends from.
func writeReply(w io.Writer, code reply, bound netip.AddrPort) error {
	_, err := w.Write(appendAddress([]byte{socksVersion, byte(code), 0}, bound))
	return err
}

// parseDatagram takes a client's UDP datagram apart (RFC 1928, section 7). payload shares b's memory.
func parseDatagram(b []byte) (to target, payload []byte, err error) {
	if len(b) < 4 {
		return target{}, nil, errShort
	}
	if b[2] != 0 {
		return target{}, nil, errFragment
	}
	r := &sliceReader{b[3:]}
	to, err = readTarget(r)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errShort
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

// appendDatagramHeader appends the header of a datagram to the client, which came from from.
func appendDatagramHeader(b []byte, from netip.AddrPort) []byte {
	return appendAddress(append(b, 0, 0, 0), from)
}
