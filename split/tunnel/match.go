package tunnel

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// The matches of a rule, each as a list of expressions; join makes them one rule.

var accept = []expr.Any{&expr.Verdict{Kind: expr.VerdictAccept}}

// reject counts, and tells the sender "administratively prohibited", so that a program fails at once.
var reject = []expr.Any{&expr.Counter{}, &expr.Reject{Type: unix.NFT_REJECT_ICMPX_UNREACH, Code: unix.NFT_REJECT_ICMPX_ADMIN_PROHIBITED}}

func join(parts ...[]expr.Any) []expr.Any { return slices.Concat(parts...) }

func equal(load expr.Any, data []byte) []expr.Any {
	return []expr.Any{load, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: data}}
}

// interfaceName is a device's name as the kernel compares it: 16 bytes with zeros.
func interfaceName(name string) []byte {
	b := make([]byte, unix.IFNAMSIZ)
	copy(b, name)
	return b
}

func interfaceIs(key expr.MetaKey, name string) []expr.Any {
	return equal(&expr.Meta{Key: key, Register: 1}, interfaceName(name))
}

func interfaceIsNot(key expr.MetaKey, name string) []expr.Any {
	return []expr.Any{&expr.Meta{Key: key, Register: 1}, &expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: interfaceName(name)}}
}

func markIs(mark uint32) []expr.Any {
	return equal(&expr.Meta{Key: expr.MetaKeyMARK, Register: 1}, binaryutil.NativeEndian.PutUint32(mark))
}

func familyIs(family byte) []expr.Any {
	return equal(&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1}, []byte{family})
}

func protocolIs(protocol byte) []expr.Any {
	return equal(&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1}, []byte{protocol})
}

func addressTypeIs(fib expr.Fib, op expr.CmpOp, kind uint32) []expr.Any {
	fib.Register, fib.ResultADDRTYPE = 1, true
	return []expr.Any{&fib, &expr.Cmp{Op: op, Register: 1, Data: binaryutil.NativeEndian.PutUint32(kind)}}
}

func portsAre(source, destination uint16) []expr.Any {
	ports := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, source), destination)
	return equal(&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 0, Len: 4}, ports)
}

func networkByteIs(offset uint32, value byte) []expr.Any {
	return equal(&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: 1}, []byte{value})
}

func transportByteIs(offset uint32, value byte) []expr.Any {
	return equal(&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: offset, Len: 1}, []byte{value})
}

// destinationIs matches the destination address: at byte 16 of an IPv4 header (RFC 791), 24 of an IPv6 one (RFC 8200).
func destinationIs(a netip.Addr) []expr.Any {
	family, offset := byte(unix.NFPROTO_IPV4), uint32(16)
	if a.Is6() {
		family, offset = unix.NFPROTO_IPV6, 24
	}
	return join(familyIs(family), equal(&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader,
		Offset: offset, Len: uint32(a.BitLen() / 8)}, a.AsSlice()))
}
