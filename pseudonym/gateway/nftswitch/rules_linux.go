package nftswitch

import (
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"heddle/internal/nft"
	"heddle/pseudonym/gateway/lead"
)

// sets have the connections of IPv4 or IPv6. Marks have the key of to.
type sets struct {
	v6       bool
	to       *nftables.Set // from client and gateway to the tenant's address
	back     *nftables.Set // from tenant and client to the gateway's address
	finished *nftables.Set // the client sent its last byte
	answered *nftables.Set // the tenant sent its last byte
	ended    *nftables.Set // both did, or the tenant broke off: forged packets of a client alone cannot end a connection
}

func newSets(table *nftables.Table, v6 bool) *sets {
	address, number, suffix := nftables.TypeIPAddr, uint32(0), "4" // the library's own numbers for sets are not safe for concurrent use
	if v6 {
		address, number, suffix = nftables.TypeIP6Addr, 10, "6"
	}
	set := func(name string) *nftables.Set {
		number++
		return &nftables.Set{Table: table, ID: number, Name: name + suffix, KeyType: nftables.MustConcatSetType(address, nftables.TypeInetService, address, nftables.TypeInetService),
			Concatenation: true, HasTimeout: true, Dynamic: true, Size: lead.Most}
	}
	leads := func(name string) *nftables.Set {
		s := set(name)
		s.IsMap, s.DataType = true, address
		return s
	}
	return &sets{v6, leads("to"), leads("back"), set("finished"), set("answered"), set("ended")}
}

// The registers that rules use, of four bytes each. The longest key takes ten.
const (
	keyAt  = unix.NFT_REG32_00
	dataAt = unix.NFT_REG32_10
)

// words is how many registers an address takes.
func (s *sets) words() uint32 { return s.to.DataType.Bytes / 4 }

// secondAt is the register of a key's second address.
func (s *sets) secondAt() uint32 { return keyAt + s.words() + 1 }

// load loads a key: address and port of the source, then of the destination.
func (s *sets) load() []expr.Any {
	return []expr.Any{nft.LoadAddress(s.v6, nft.Source, keyAt), nft.LoadPort(nft.Source, keyAt+s.words()),
		nft.LoadAddress(s.v6, nft.Destination, s.secondAt()), nft.LoadPort(nft.Destination, s.secondAt()+s.words())}
}

// find matches if a set has the key. What a map has comes into a register.
func find(set *nftables.Set, register uint32) []expr.Any {
	l := &expr.Lookup{SourceRegister: keyAt, SetName: set.Name, SetID: set.ID}
	if set.IsMap {
		l.DestRegister, l.IsDestRegSet = register, true
	}
	return []expr.Any{l}
}

// keep adds the key to a set, or prolongs it.
func keep(set *nftables.Set, lasting time.Duration) []expr.Any {
	return []expr.Any{&expr.Dynset{SrcRegKey: keyAt, SrcRegData: data(set), SetName: set.Name, SetID: set.ID, Operation: uint32(unix.NFT_DYNSET_OP_UPDATE), Timeout: lasting}}
}

// drop removes the key from a set.
func drop(set *nftables.Set) []expr.Any {
	return []expr.Any{&expr.Dynset{SrcRegKey: keyAt, SrcRegData: data(set), SetName: set.Name, SetID: set.ID, Operation: dynsetDelete}}
}

// dynsetDelete is NFT_DYNSET_OP_DELETE of linux/netfilter/nf_tables.h.
const dynsetDelete = 2

func data(set *nftables.Set) uint32 {
	if set.IsMap {
		return dataAt
	}
	return 0
}

// Bits of the byte of flags in a TCP header, at byte 13 (RFC 9293).
const (
	flagsAt  = 13
	fin      = 1
	syn      = 2
	rst      = 4
	ack      = 16
	numberAt = 4 // of the sequence number

	acknowledgedAt = 8
)

// flags matches if of the bits in mask exactly want are set.
func flags(mask, want byte) []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: dataAt, Base: expr.PayloadBaseTransportHeader, Offset: flagsAt, Len: 1},
		&expr.Bitwise{SourceRegister: dataAt, DestRegister: dataAt, Len: 1, Mask: []byte{mask}, Xor: []byte{0}},
		&expr.Cmp{Op: expr.CmpOpEq, Register: dataAt, Data: []byte{want}},
	}
}

// first matches the sequence number 0: that of the answer to what asks makes of a SYN, if there is no connection.
var first = []expr.Any{
	&expr.Payload{DestRegister: dataAt, Base: expr.PayloadBaseTransportHeader, Offset: numberAt, Len: 4},
	&expr.Cmp{Op: expr.CmpOpEq, Register: dataAt, Data: make([]byte, 4)},
}

// options matches headers of IPv4 that have some.
var options = []expr.Any{
	&expr.Payload{DestRegister: dataAt, Base: expr.PayloadBaseNetworkHeader, Len: 1},
	&expr.Cmp{Op: expr.CmpOpNeq, Register: dataAt, Data: []byte{withoutOptions}},
}

// asks makes an acknowledgement of 0 of a client's SYN. A tenant that has the connection answers it with an acknowledgement, as it does a SYN, and one that
// has it no more with a reset. To a SYN another server of the tenant's machine would answer, with the tenant's address, if it listens there.
var asks = []expr.Any{
	&expr.Immediate{Register: dataAt, Data: make([]byte, 4)},
	writeTCP(acknowledgedAt, 4),
	&expr.Payload{DestRegister: dataAt, Base: expr.PayloadBaseTransportHeader, Offset: flagsAt - 1, Len: 2}, // the kernel corrects checksums by words
	&expr.Bitwise{SourceRegister: dataAt, DestRegister: dataAt, Len: 2, Mask: []byte{0xff, 0}, Xor: []byte{0, ack}},
	writeTCP(flagsAt-1, 2),
}

// writeTCP writes into a TCP header, and corrects its checksum.
func writeTCP(at, length uint32) *expr.Payload {
	return &expr.Payload{OperationType: expr.PayloadWrite, SourceRegister: dataAt, Base: expr.PayloadBaseTransportHeader, Offset: at, Len: length, CsumType: expr.CsumTypeInet, CsumOffset: 16}
}

// rewrite writes the address that was found into a packet, and corrects its checksums.
func (s *sets) rewrite(side nft.Side) []expr.Any {
	p := nft.LoadAddress(s.v6, side, 0).(*expr.Payload)
	p.OperationType, p.SourceRegister = expr.PayloadWrite, dataAt
	p.CsumType, p.CsumOffset, p.CsumFlags = expr.CsumTypeInet, 10, unix.NFT_PAYLOAD_L4CSUM_PSEUDOHDR // RFC 791, section 3.1
	if s.v6 {
		// IPv6 has no checksum of its own, but the library asks for that of TCP only together with one. So the flow label takes the difference:
		// it is random, and stays the same in all packets of a connection (RFC 6437).
		p.CsumOffset = 2
	}
	return []expr.Any{p}
}

// likeOwn gives a packet of a protocol the TTL or hop limit of this machine's own packets: observers would see how far away the tenant is.
func (s *sets) likeOwn(ttl, protocol byte) []expr.Any {
	p := &expr.Payload{OperationType: expr.PayloadWrite, SourceRegister: dataAt, Base: expr.PayloadBaseNetworkHeader, Offset: 7, Len: 1}
	value := []byte{ttl}
	if !s.v6 { // the kernel corrects checksums by words, so the protocol is written with it
		p.Offset, p.Len, p.CsumType, p.CsumOffset = 8, 2, expr.CsumTypeInet, 10
		value = append(value, protocol)
	}
	return []expr.Any{&expr.Immediate{Register: dataAt, Data: value}, p}
}

// untracked keeps connection tracking away, which saw the connection begin elsewhere.
var untracked = []expr.Any{&expr.Notrack{}}

// rules adds rules for packets of one protocol to a chain.
type rules func(parts ...[]expr.Any)

// chain returns the rules for a protocol.
type chain func(protocol byte) rules

// chains adds the chains. They see packets before connection tracking on their way in, and after address translation on their way out. A source
// that is an address of this machine would not pass routing, so the source changes on the way out.
func chains(conn *nftables.Conn, table *nftables.Table) (in, out chain) {
	add := func(name string, hook *nftables.ChainHook, priority nftables.ChainPriority) chain {
		c := conn.AddChain(&nftables.Chain{Name: name, Table: table, Type: nftables.ChainTypeFilter, Hooknum: hook, Priority: &priority})
		conn.FlushChain(c)
		return func(protocol byte) rules {
			return func(parts ...[]expr.Any) {
				conn.AddRule(&nftables.Rule{Table: table, Chain: c, Exprs: nft.Join(nft.Protocol(protocol), nft.Join(parts...))})
			}
		}
	}
	return add("in", nftables.ChainHookPrerouting, *nftables.ChainPriorityRaw-1), add("out", nftables.ChainHookPostrouting, *nftables.ChainPriorityNATSource+1)
}

// add adds sets and rules. Packets that are led get the TTL.
func (s *sets) add(conn *nftables.Conn, in, out chain, ttl byte) error {
	for _, set := range []*nftables.Set{s.to, s.back, s.finished, s.answered, s.ended} {
		if err := conn.AddSet(set, nil); err != nil {
			return err
		}
	}
	mine := func(of chain, protocol byte) rules {
		return func(parts ...[]expr.Any) { of(protocol)(nft.IPv6(s.v6), nft.Join(parts...)) }
	}
	s.in(mine(in, unix.IPPROTO_TCP), ttl)
	s.out(mine(out, unix.IPPROTO_TCP), ttl)
	s.errorsIn(mine(in, s.icmp()))
	s.errorsOut(mine(out, s.icmp()), ttl)
	return nil
}

// in adds the rules for what arrives. A client's packets get a new TTL too. Otherwise one that this machine takes could end behind it, and the
// errors, or that no answer comes, would show how far away the tenant is.
func (s *sets) in(rule rules, ttl byte) {
	load, begins := s.load(), flags(syn|ack|rst|fin, syn)
	led := nft.Join(untracked, s.rewrite(nft.Destination), s.likeOwn(ttl, unix.IPPROTO_TCP), nft.Accept)
	some := &expr.Immediate{Register: dataAt, Data: make([]byte, 4*s.words())} // the kernel wants data with a map's element that it removes
	rule(begins, load, find(s.ended, 0), []expr.Any{some}, drop(s.to), drop(s.finished), drop(s.answered), drop(s.ended), nft.Accept)
	if !s.v6 { // errorsOut would not know a packet with options again that an error quotes
		rule(load, find(s.to, dataAt), options, nft.Drop)
	}
	// A SYN prolongs no entry.
	rule(begins, load, find(s.to, dataAt), untracked, s.rewrite(nft.Destination), asks, s.likeOwn(ttl, unix.IPPROTO_TCP), nft.Accept)
	rule(flags(fin, fin), load, find(s.to, dataAt), keep(s.finished, lead.Idle))
	rule(flags(fin, fin), load, find(s.to, dataAt), find(s.answered, 0), keep(s.ended, 2*lead.Idle))
	rule(load, find(s.to, dataAt), keep(s.to, lead.Idle), led)
	// The tenant begins a connection from the client's port that did not pass the gateway, so the one that was led has ended there. A SYN that
	// somebody forges does not lead to this while it lasts: the tenant answers with an ACK alone.
	rule(flags(syn, syn), load, find(s.back, dataAt), drop(s.back), nft.Accept)
	rule(load, find(s.back, dataAt), untracked, nft.Accept)
}

// out adds the rules for what tenants send to clients.
func (s *sets) out(rule rules, ttl byte) {
	load := s.load()
	// mark loads the key of marks: client and gateway. The gateway's address comes from back to its place in the key.
	mark := nft.Join(load, find(s.back, s.secondAt()), []expr.Any{nft.LoadAddress(s.v6, nft.Destination, keyAt), nft.LoadPort(nft.Destination, keyAt+s.words()),
		nft.LoadPort(nft.Source, s.secondAt()+s.words())})
	// The tenant does not know the connection, so the client's SYN was the first packet of a new one. It comes again, to the gateway.
	rule(flags(rst, rst), first, mark, keep(s.ended, 2*lead.Idle), nft.Drop)
	rule(flags(rst, rst), mark, keep(s.ended, 2*lead.Idle))
	rule(flags(fin, fin), mark, keep(s.answered, lead.Idle))
	rule(flags(fin, fin), mark, find(s.finished, 0), keep(s.ended, 2*lead.Idle))
	rule(load, find(s.back, dataAt), keep(s.back, lead.Idle), s.rewrite(nft.Source), s.likeOwn(ttl, unix.IPPROTO_TCP), nft.Accept)
}
