// Package nft writes nftables tables and rules. A rule is a list of expressions: matches, evaluated in order, and a verdict.
// The functions here return parts of rules for [Join].
package nft

import (
	"encoding/binary"
	"net"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

func Join(parts ...[]expr.Any) []expr.Any { return slices.Concat(parts...) }

// The verdicts. Drop and Reject also count the packet.
var (
	Accept = verdict(expr.VerdictAccept)
	Pass   = verdict(expr.VerdictContinue) // continues with the next rule, for rules that only count
	Drop   = Join(Count, verdict(expr.VerdictDrop))
	// Reject answers "administratively prohibited", so that a program fails at once.
	Reject = Join(Count, []expr.Any{&expr.Reject{Type: unix.NFT_REJECT_ICMPX_UNREACH, Code: unix.NFT_REJECT_ICMPX_ADMIN_PROHIBITED}})
)

// Count counts packets and their bytes, including the IP header.
var Count = []expr.Any{&expr.Counter{}}

func verdict(kind expr.VerdictKind) []expr.Any { return []expr.Any{&expr.Verdict{Kind: kind}} }

// Equal matches if load puts data into register 1.
func Equal(load expr.Any, data []byte) []expr.Any { return compare(expr.CmpOpEq, load, data) }

func compare(op expr.CmpOp, load expr.Any, data []byte) []expr.Any {
	return []expr.Any{load, &expr.Cmp{Op: op, Register: 1, Data: data}}
}

func meta(key expr.MetaKey) expr.Any { return &expr.Meta{Key: key, Register: 1} }

func number(n uint32) []byte { return binaryutil.NativeEndian.PutUint32(n) }

// name returns a device name as the kernel compares it: padded with zeros to 16 bytes.
func name(device string) []byte {
	b := make([]byte, unix.IFNAMSIZ)
	copy(b, device)
	return b
}

// InIndex matches packets that arrived by the device with the index.
func InIndex(index int) []expr.Any { return Equal(meta(expr.MetaKeyIIF), number(uint32(index))) }

// OutIndex matches packets that leave by the device with the index.
func OutIndex(index int) []expr.Any { return Equal(meta(expr.MetaKeyOIF), number(uint32(index))) }

// In matches packets that arrived by a device of the name, which may not exist yet.
func In(device string) []expr.Any { return Equal(meta(expr.MetaKeyIIFNAME), name(device)) }

// NotIn matches packets that did not arrive by a device of the name.
func NotIn(device string) []expr.Any {
	return compare(expr.CmpOpNeq, meta(expr.MetaKeyIIFNAME), name(device))
}

// Out matches packets that leave by a device of the name, which may not exist yet.
func Out(device string) []expr.Any { return Equal(meta(expr.MetaKeyOIFNAME), name(device)) }

func Mark(mark uint32) []expr.Any { return Equal(meta(expr.MetaKeyMARK), number(mark)) }

// Priority matches packets of a class of traffic control.
func Priority(class uint32) []expr.Any { return Equal(meta(expr.MetaKeyPRIORITY), number(class)) }

func ConnectionMark(mark uint32) []expr.Any {
	return Equal(&expr.Ct{Key: expr.CtKeyMARK, Register: 1}, number(mark))
}

func SetMark(mark uint32) []expr.Any {
	return []expr.Any{&expr.Immediate{Register: 1, Data: number(mark)}, &expr.Meta{Key: expr.MetaKeyMARK, Register: 1, SourceRegister: true}}
}

func SetConnectionMark(mark uint32) []expr.Any {
	return []expr.Any{&expr.Immediate{Register: 1, Data: number(mark)}, &expr.Ct{Key: expr.CtKeyMARK, Register: 1, SourceRegister: true}}
}

// IPv6 matches packets of IPv6, or of IPv4 if v6 is false, in a table for both families.
func IPv6(v6 bool) []expr.Any {
	family := byte(unix.NFPROTO_IPV4)
	if v6 {
		family = unix.NFPROTO_IPV6
	}
	return Equal(meta(expr.MetaKeyNFPROTO), []byte{family})
}

// Protocol matches the transport protocol by its number.
func Protocol(number byte) []expr.Any { return Equal(meta(expr.MetaKeyL4PROTO), []byte{number}) }

// Local matches packets whose address at a side is one of this machine, or is not.
func Local(s Side, local bool) []expr.Any {
	op := expr.CmpOpEq
	if !local {
		op = expr.CmpOpNeq
	}
	return compare(op, &expr.Fib{Register: 1, ResultADDRTYPE: true, FlagSADDR: s == Source, FlagDADDR: s == Destination}, number(unix.RTN_LOCAL))
}

type Side int // selects one of a packet's two addresses or ports

const (
	Source Side = iota
	Destination
)

// LoadAddress loads an address: IPv4 has them at bytes 12 and 16 (RFC 791), IPv6 at 8 and 24 (RFC 8200).
func LoadAddress(v6 bool, s Side, register uint32) expr.Any {
	first, length := uint32(12), uint32(4)
	if v6 {
		first, length = 8, 16
	}
	return &expr.Payload{DestRegister: register, Base: expr.PayloadBaseNetworkHeader, Offset: first + uint32(s)*length, Len: length}
}

func LoadPort(s Side, register uint32) expr.Any {
	return &expr.Payload{DestRegister: register, Base: expr.PayloadBaseTransportHeader, Offset: 2 * uint32(s), Len: 2}
}

func Address(a netip.Addr, s Side) []expr.Any {
	return Join(IPv6(a.Is6()), Equal(LoadAddress(a.Is6(), s, 1), a.AsSlice()))
}

// Within matches packets whose address at a side is in the prefix.
func Within(p netip.Prefix, s Side) []expr.Any {
	p = p.Masked()
	v6, bits := p.Addr().Is6(), p.Addr().BitLen()
	masked := &expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: uint32(bits / 8), Mask: net.CIDRMask(p.Bits(), bits), Xor: make([]byte, bits/8)}
	return Join(IPv6(v6), []expr.Any{LoadAddress(v6, s, 1), masked, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: p.Addr().AsSlice()}})
}

// UDP matches datagrams to or from an address and port. It leaves the port in register 1.
func UDP(a netip.AddrPort, s Side) []expr.Any {
	return Join(Address(a.Addr(), s), Protocol(unix.IPPROTO_UDP),
		Equal(LoadPort(s, 1), binary.BigEndian.AppendUint16(nil, a.Port())))
}

func Ports(source, destination uint16) []expr.Any {
	ports := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, source), destination)
	return Equal(&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Len: 4}, ports)
}

func NetworkByte(offset uint32, value byte) []expr.Any {
	return Equal(&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: 1}, []byte{value})
}

// TransportByte matches a byte of the header that follows the IP header.
func TransportByte(offset uint32, value byte) []expr.Any {
	return Equal(&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: offset, Len: 1}, []byte{value})
}

// TransportBit matches if any of these bits is set in a byte of the header that follows the IP header, or behind it.
func TransportBit(offset uint32, bits byte) []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: offset, Len: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 1, Mask: []byte{bits}, Xor: []byte{0}},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: []byte{0}},
	}
}

// UDPLength matches datagrams whose length, with the UDP header, is between two bounds, inclusive.
func UDPLength(from, to uint16) []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 4, Len: 2},
		&expr.Range{Op: expr.CmpOpEq, Register: 1, FromData: binary.BigEndian.AppendUint16(nil, from), ToData: binary.BigEndian.AppendUint16(nil, to)},
	}
}

type Direction byte // within a connection, as the kernel numbers it

// The directions: that of the connection's first packet, and the opposite one.
const (
	Original Direction = iota
	Reply
)

func InDirection(d Direction) []expr.Any {
	return Equal(&expr.Ct{Key: expr.CtKeyDIRECTION, Register: 1}, []byte{byte(d)})
}

// Translated matches packets of connections with a translated destination, by any rule.
var Translated = connectionHas(expr.CtKeySTATUS, 1<<5) // IPS_DST_NAT

// Related matches packets about a connection, such as ICMP errors.
var Related = connectionHas(expr.CtKeySTATE, expr.CtStateBitRELATED)

func connectionHas(key expr.CtKey, bit uint32) []expr.Any {
	return []expr.Any{
		&expr.Ct{Key: key, Register: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: number(bit), Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: make([]byte, 4)},
	}
}

// Lookup matches if a set contains the value in register 1. A map replaces the register by the value of that key.
func Lookup(set *nftables.Set) []expr.Any {
	return []expr.Any{&expr.Lookup{SourceRegister: 1, SetName: set.Name, SetID: set.ID, DestRegister: 1, IsDestRegSet: set.IsMap}}
}
