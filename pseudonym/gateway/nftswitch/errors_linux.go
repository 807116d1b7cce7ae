package nftswitch

import (
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"heddle/internal/nft"
)

// An ICMP error quotes the packet that it is about, and both sides know that by other addresses than the other side. A tenant has to learn that a
// network towards the client takes smaller packets only, and a client that the one towards the tenant does. No other error passes to a client: it
// quotes the tenant's address, so that whoever sends packets in a client's name and sees the answers would learn where they lead.

// quote has offsets from the begin of an ICMP header: of the checksum that covers the addresses, and of the fields of the packet that an error quotes.
type quote struct{ checksum, protocol, source, destination, ports uint32 }

// quoted is the number of bytes before the packet that an error quotes (RFC 792, RFC 4443).
const quoted = 8

// quote returns the offsets. They are those of a header of IPv4 without options, whose own checksum makes up for a change of the addresses, so that
// the one of ICMP stays right.
func (s *sets) quote() quote {
	if s.v6 {
		return quote{checksum: 2, protocol: quoted + 6, source: quoted + 8, destination: quoted + 24, ports: quoted + 40}
	}
	return quote{checksum: quoted + 10, protocol: quoted + 9, source: quoted + 12, destination: quoted + 16, ports: quoted + 20}
}

func (s *sets) icmp() byte {
	if s.v6 {
		return unix.IPPROTO_ICMPV6
	}
	return unix.IPPROTO_ICMP
}

// withoutOptions begins a header of IPv4 that has none.
const withoutOptions = 0x45

// about matches an error about a packet of TCP, and loads its key, as it is for packets of the other direction.
func (s *sets) about() []expr.Any {
	at := s.quote()
	load := func(offset, length, register uint32) expr.Any {
		return &expr.Payload{DestRegister: register, Base: expr.PayloadBaseTransportHeader, Offset: offset, Len: length}
	}
	parts := nft.TransportByte(at.protocol, unix.IPPROTO_TCP)
	if !s.v6 {
		parts = nft.Join(nft.TransportByte(quoted, withoutOptions), parts)
	}
	bytes := 4 * s.words()
	return append(parts, load(at.destination, bytes, keyAt), load(at.ports+2, 2, keyAt+s.words()), load(at.source, bytes, s.secondAt()), load(at.ports, 2, s.secondAt()+s.words()))
}

// tooLarge matches the error that a packet was too large, by its type and code.
func (s *sets) tooLarge() []expr.Any {
	kind, code := byte(3), byte(4)
	if s.v6 {
		kind, code = 2, 0
	}
	return nft.Join(nft.TransportByte(0, kind), nft.TransportByte(1, code))
}

// requote writes the address that was found into the packet that an error quotes.
func (s *sets) requote(side nft.Side) []expr.Any {
	at := s.quote()
	p := &expr.Payload{OperationType: expr.PayloadWrite, SourceRegister: dataAt, Base: expr.PayloadBaseTransportHeader, Offset: at.source, Len: 4 * s.words(),
		CsumType: expr.CsumTypeInet, CsumOffset: at.checksum}
	if side == nft.Destination {
		p.Offset = at.destination
	}
	return []expr.Any{p}
}

// errorsIn adds the rules for errors about tenants' packets. Others are for this machine, which ignores them.
func (s *sets) errorsIn(rule rules) {
	rule(s.tooLarge(), s.about(), find(s.to, dataAt), untracked, s.requote(nft.Source), s.rewrite(nft.Destination), nft.Accept)
}

// errorsOut adds the rules for errors about clients' packets.
func (s *sets) errorsOut(rule rules, ttl byte) {
	rule(s.tooLarge(), s.about(), find(s.back, dataAt), s.requote(nft.Destination), s.rewrite(nft.Source), s.likeOwn(ttl, s.icmp()), nft.Accept)
	rule(s.about(), find(s.back, dataAt), nft.Drop)
}
