package answers

import (
	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"heddle/internal/nft"
)

// create makes the table without entries. It fails if there is one.
func create(conn *nftables.Conn) error {
	conn.CreateTable(table)
	for _, f := range families {
		if err := conn.AddSet(f.servers(), nil); err != nil {
			return err
		}
	}
	// Forwarded packets are not this machine's answers, so the chain is not that after routing.
	chain := conn.AddChain(&nftables.Chain{Name: "answers", Table: table, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookOutput, Priority: nftables.ChainPriorityFilter})
	for _, f := range families {
		for _, rule := range f.rules() {
			conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: rule})
		}
	}
	return nil
}

func (f family) rules() (all [][]expr.Any) {
	server := nft.Join([]expr.Any{nft.LoadAddress(f.v6, nft.Destination, 1)}, nft.Lookup(f.servers()))
	for _, kind := range f.errors {
		var code []expr.Any
		if !f.v6 && kind == unreachable {
			code = notFragmentationNeeded
		}
		all = append(all, nft.Join(nft.IPv6(f.v6), nft.Protocol(f.icmp), nft.TransportByte(0, kind), code, server, nft.Drop))
	}
	all = append(all, nft.Join(nft.IPv6(f.v6), nft.Protocol(unix.IPPROTO_TCP), nft.TransportBit(flagsAt, 4), elsewhere, server, nft.Drop))
	if f.v6 {
		late := nft.Join(nft.IPv6(true), nft.Protocol(unix.IPPROTO_TCP), bareACK, elsewhere, server)
		all = append(all, nft.Join(late, owned, nft.Accept), nft.Join(late, nft.Drop))
	}
	return all
}

// unreachable is the type of ICMP messages of IPv4 whose code 4 tells of a smaller MTU (RFC 1191).
const unreachable = 3

var notFragmentationNeeded = []expr.Any{&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 1, Len: 1},
	&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: []byte{4}}}

// flagsAt is where a TCP header has its flags; RST is the bit of 4 (RFC 9293, section 3.1).
const flagsAt = 13

// bareACK matches TCP segments of IPv6 with the flag ACK alone and without data: what follows IPv6's header is at most 60 bytes, as much
// as TCP's header can take. IPv6 has that length in bytes 4 and 5 (RFC 8200).
var bareACK = append(nft.TransportByte(flagsAt, 0x10),
	&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: 4, Len: 2},
	&expr.Cmp{Op: expr.CmpOpLte, Register: 1, Data: []byte{0, 60}})

// owned matches packets of a socket that a process has open: no other packet has a user to load.
var owned = []expr.Any{&expr.Meta{Key: expr.MetaKeySKUID, Register: 1}}

// elsewhere matches packets that leave by a device without their source address.
var elsewhere = []expr.Any{&expr.Fib{Register: 1, ResultADDRTYPE: true, FlagSADDR: true, FlagOIF: true},
	&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: binaryutil.NativeEndian.PutUint32(unix.RTN_LOCAL)}}
