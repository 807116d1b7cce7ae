package openflow

import (
	"encoding/binary"
	"net"
	"net/netip"
)

// FieldType is a header field of packets: class and number of an OXM field (section 7.2.3.4).
type FieldType uint32

const basic = 0x8000 << 16

// Fields of packets.
const (
	InPort     FieldType = basic
	EthDst     FieldType = basic | 3<<9
	EthType    FieldType = basic | 5<<9
	IPProto    FieldType = basic | 10<<9
	IPv4Src    FieldType = basic | 11<<9
	IPv4Dst    FieldType = basic | 12<<9
	TCPSrc     FieldType = basic | 13<<9
	TCPDst     FieldType = basic | 14<<9
	ICMPv4Type FieldType = basic | 19<<9
	IPv6Src    FieldType = basic | 26<<9
	IPv6Dst    FieldType = basic | 27<<9
	ICMPv6Type FieldType = basic | 29<<9
	TCPFlags   FieldType = 1<<16 | 34<<9 // NXM_NX_TCP_FLAGS
)

// Field is a field with a value, in the order of the network. A mask has a 1 for each bit that counts; without one all do.
type Field struct {
	Type        FieldType
	Value, Mask []byte
}

// Match is what packets of a flow have in common: all of its fields.
type Match []Field

// U8 is a field of one byte.
func U8(t FieldType, v uint8) Field { return Field{Type: t, Value: []byte{v}} }

// U16 is a field of two bytes.
func U16(t FieldType, v uint16) Field {
	return Field{Type: t, Value: binary.BigEndian.AppendUint16(nil, v)}
}

// MAC is a field with an address of Ethernet.
func MAC(t FieldType, a net.HardwareAddr) Field { return Field{Type: t, Value: a} }

// Source is the field with the source of a packet of IP.
func Source(a netip.Addr) Field { return address(a, IPv4Src, IPv6Src) }

// Target is the field with the destination of a packet of IP.
func Target(a netip.Addr) Field { return address(a, IPv4Dst, IPv6Dst) }

func address(a netip.Addr, v4, v6 FieldType) Field {
	if a.Is4() {
		return Field{Type: v4, Value: a.AsSlice()}
	}
	return Field{Type: v6, Value: a.AsSlice()}
}

// Flags matches flags of TCP: of those in mask all that are in set, and no other.
func Flags(set, mask uint16) Field {
	f := U16(TCPFlags, set)
	f.Mask = binary.BigEndian.AppendUint16(nil, mask)
	return f
}

// Get returns the value of a field, or nil.
func (m Match) Get(t FieldType) []byte {
	for _, f := range m {
		if f.Type == t {
			return f.Value
		}
	}
	return nil
}

// address returns that of a field, which is not valid if there is none.
func (m Match) address(v4, v6 FieldType) netip.Addr {
	a, _ := netip.AddrFromSlice(m.Get(v4))
	if !a.IsValid() {
		a, _ = netip.AddrFromSlice(m.Get(v6))
	}
	return a
}

// Addresses returns source and destination of a match of TCP. An address that the match lacks is not valid, and a port is 0.
func (m Match) Addresses() (source, target netip.AddrPort) {
	port := func(t FieldType) uint16 {
		if b := m.Get(t); len(b) == 2 {
			return binary.BigEndian.Uint16(b)
		}
		return 0
	}
	return netip.AddrPortFrom(m.address(IPv4Src, IPv6Src), port(TCPSrc)), netip.AddrPortFrom(m.address(IPv4Dst, IPv6Dst), port(TCPDst))
}

// hasMask is the bit of an OXM header that says that a mask follows the value.
const hasMask = 1 << 8

func (f Field) append(b []byte) []byte {
	header := uint32(f.Type) | uint32(len(f.Value)+len(f.Mask))
	if len(f.Mask) > 0 {
		header |= hasMask
	}
	return append(append(binary.BigEndian.AppendUint32(b, header), f.Value...), f.Mask...)
}

// parseField returns the first field of b, and what follows it.
func parseField(b []byte) (f Field, rest []byte, err error) {
	if len(b) < 4 {
		return f, nil, errShort
	}
	header := binary.BigEndian.Uint32(b)
	n := int(header & 0xff)
	if b = b[4:]; len(b) < n {
		return f, nil, errShort
	}
	f = Field{Type: FieldType(header &^ (hasMask | 0xff)), Value: b[:n]}
	if header&hasMask != 0 {
		f.Value, f.Mask = b[:n/2], b[n/2:n]
	}
	return f, b[n:], nil
}

// matchOXM is the only type of match (section 7.2.3.1).
const matchOXM = 1

func (m Match) append(b []byte) []byte {
	at := len(b)
	b = append(b, 0, matchOXM, 0, 0)
	for _, f := range m {
		b = f.append(b)
	}
	binary.BigEndian.PutUint16(b[at+2:], uint16(len(b)-at))
	return pad(b, at)
}

// parseMatch returns the match that b begins with, and what follows it.
func parseMatch(b []byte) (m Match, rest []byte, err error) {
	if len(b) < 4 {
		return nil, nil, errShort
	}
	n := int(binary.BigEndian.Uint16(b[2:]))
	if n < 4 || len(b) < padded(n) {
		return nil, nil, errShort
	}
	for fields := b[4:n]; len(fields) > 0; {
		var f Field
		if f, fields, err = parseField(fields); err != nil {
			return nil, nil, err
		}
		m = append(m, f)
	}
	return m, b[padded(n):], nil
}
