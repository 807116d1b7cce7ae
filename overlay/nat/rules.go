package nat

import (
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// layout is where in the kernel a table's chains sit.
type layout struct {
	name         string
	ports        bool // a node, which leases ports and hides the client's address behind its own
	translate    *nftables.ChainHook
	closing      *nftables.ChainHook
	closingChain string
}

var (
	nodeLayout = layout{name: "heddle_nat", ports: true, translate: nftables.ChainHookPrerouting,
		closing: nftables.ChainHookForward, closingChain: "forward"}
	localLayout = layout{name: "heddle_local_", // and the number of the process
		translate: nftables.ChainHookOutput, closing: nftables.ChainHookOutput, closingChain: "closing"}
)

func (l layout) table(f family) *nftables.Table {
	return &nftables.Table{Name: l.name, Family: f.table}
}

// A family has a table of its own, of the same name: nftables joins fields of fixed lengths.
type family struct {
	table      nftables.TableFamily
	number     int    // among families
	forwarding string // the kernel's setting
	icmp       byte   // the protocol's number
	address    nftables.SetDatatype
	// Where the client's and this machine's address lie in the IP header (RFC 791, RFC 8200), and their length.
	source, destination, length uint32
	// Registers of the second and third field of what is looked up, and found. A register of nftables has 16 bytes, and
	// numbers from 8 on are its quarters.
	second, third uint32
}

var families = []family{
	{table: nftables.TableFamilyIPv4, number: 0, forwarding: forwardIPv4, icmp: unix.IPPROTO_ICMP, address: nftables.TypeIPAddr, source: 12, destination: 16, length: 4, second: 9, third: 10},
	{table: nftables.TableFamilyIPv6, number: 1, forwarding: forwardIPv6, icmp: unix.IPPROTO_ICMPV6, address: nftables.TypeIP6Addr, source: 8, destination: 24, length: 16, second: 2, third: 3},
}

func familyOf(a netip.Addr) family {
	if a.Is4() {
		return families[0]
	}
	return families[1]
}

// leases is the map from where a packet comes from and goes to, to where it shall go; its elements end by themselves.
func (l layout) leases(f family) *nftables.Set {
	s := l.set(f, 0, "leases", f.address, f.address, nftables.TypeInetService)
	s.IsMap, s.DataType = true, nftables.MustConcatSetType(f.address, nftables.TypeInetService)
	return s
}

// open is, at a node, the set of keys that have a lease; they end with it.
func (l layout) open(f family) *nftables.Set {
	return l.set(f, 1, "open", f.address, nftables.TypeInetService)
}

// known is, at a node, the set of keys that have or had a lease: what is translated by one that has none is dropped.
func (l layout) known(f family) *nftables.Set {
	s := l.set(f, 2, "known", f.address, nftables.TypeInetService)
	s.Counter = true
	return s
}

// direct is, at a client, the set of what must not leave as it is: it would go past the nodes.
func (l layout) direct(f family) *nftables.Set {
	return l.set(f, 3, "direct", f.address, f.address, nftables.TypeInetService)
}

// set numbers sets for a transaction: the library does it too, but not for use from several goroutines.
func (l layout) set(f family, number uint32, name string, fields ...nftables.SetDatatype) *nftables.Set {
	return &nftables.Set{Table: l.table(f), ID: uint32(f.table)<<2 | number, Name: name, HasTimeout: true, Concatenation: true, Size: 2 * maxLeases,
		KeyType: nftables.MustConcatSetType(fields...)}
}

// transaction bounds what one change may have, in bytes: some 200 for each element of each set.
const transaction = 16 << 20

// connect makes a connection for a change. A transaction is one message to the kernel, which must fit its socket's buffer, as must all answers.
func connect() (*nftables.Conn, error) {
	return nftables.New(nftables.WithSockOptions(func(c *netlink.Conn) error {
		return errors.Join(c.SetWriteBuffer(transaction), c.SetReadBuffer(transaction))
	}))
}

// write replaces the tables in one transaction by some that hold content. A family that is closed is forwarded under a
// lease or not at all.
func (l layout) write(c content, closed [2]bool) error {
	conn, err := connect()
	if err != nil {
		return err
	}
	for _, f := range families {
		policy := nftables.ChainPolicyAccept
		if closed[f.number] {
			policy = nftables.ChainPolicyDrop
		}
		if err := l.build(conn, f, policy); err != nil {
			return err
		}
	}
	for _, f := range families {
		if err := l.fill(conn, f, c); err != nil {
			return err
		}
	}
	return conn.Flush()
}

// fill puts what a family's tables hold into new ones.
func (l layout) fill(conn *nftables.Conn, f family, c content) error {
	var e elements
	for _, lease := range c.leases {
		if familyOf(lease.Client).table == f.table {
			e.add(lease.Rule, max(time.Until(lease.Until), time.Millisecond), l.ports)
		}
	}
	for _, k := range c.ended() {
		if l.ports && familyOf(k.client).table == f.table {
			e.known = append(e.known, nftables.SetElement{Key: k.bytes()})
		}
	}
	return e.put(conn, l, f)
}

func (l layout) build(conn *nftables.Conn, f family, policy nftables.ChainPolicy) error {
	table, leases, open, known, direct := l.table(f), l.leases(f), l.open(f), l.known(f), l.direct(f)
	conn.AddTable(table) // so that there is one to delete
	conn.DelTable(table)
	conn.AddTable(table)
	sets := []*nftables.Set{leases, direct}
	if l.ports {
		sets = []*nftables.Set{leases, open, known}
	}
	for _, set := range sets {
		if err := conn.AddSet(set, nil); err != nil {
			return err
		}
	}
	chain := func(c nftables.Chain, rules ...[]expr.Any) {
		c.Table = table
		conn.AddChain(&c)
		for _, r := range rules {
			conn.AddRule(&nftables.Rule{Table: table, Chain: &c, Exprs: r})
		}
	}
	dropped := slices.Concat([]expr.Any{&expr.Counter{}}, verdict(expr.VerdictDrop))
	closing := [][]expr.Any{slices.Concat(tcp(), f.packet(), lookup(direct), dropped)}
	if l.ports {
		// What tells an end that its packets are too big, or arrive nowhere, passes also where the chain is closed to others.
		closing = [][]expr.Any{slices.Concat(protocol(f.icmp), connectionHas(expr.CtKeySTATE, related), verdict(expr.VerdictAccept))}
		for _, direction := range []uint32{original, reply} {
			closing = append(closing,
				slices.Concat(tcp(), translated(), f.connection(direction), lookup(known), lookup(open), verdict(expr.VerdictAccept)),
				slices.Concat(tcp(), translated(), f.connection(direction), lookup(known), dropped))
		}
	}
	chain(nftables.Chain{Name: "translate", Type: nftables.ChainTypeNAT, Hooknum: l.translate, Priority: nftables.ChainPriorityNATDest},
		slices.Concat(tcp(), f.packet(), lookup(leases), []expr.Any{
			&expr.NAT{Type: expr.NATTypeDestNAT, Family: uint32(f.table), RegAddrMin: 1, RegProtoMin: f.second, Specified: true}}))
	chain(l.closingChainOf(f, policy), closing...)
	if l.ports {
		chain(nftables.Chain{Name: "back", Type: nftables.ChainTypeNAT, Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource},
			slices.Concat(tcp(), translated(), f.connection(original), lookup(open), []expr.Any{&expr.Masq{}}))
	}
	return nil
}

// closingChainOf is the chain that packets pass after they were translated.
func (l layout) closingChainOf(f family, policy nftables.ChainPolicy) nftables.Chain {
	return nftables.Chain{Name: l.closingChain, Table: l.table(f), Type: nftables.ChainTypeFilter, Hooknum: l.closing,
		Priority: nftables.ChainPriorityFilter, Policy: &policy}
}

func tcp() []expr.Any { return protocol(unix.IPPROTO_TCP) }

func protocol(number byte) []expr.Any {
	return equal(&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1}, []byte{number})
}

func equal(load expr.Any, data []byte) []expr.Any {
	return []expr.Any{load, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: data}}
}

// packet loads from where to where a packet goes.
func (f family) packet() []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: f.source, Len: f.length},
		&expr.Payload{DestRegister: f.second, Base: expr.PayloadBaseNetworkHeader, Offset: f.destination, Len: f.length},
		&expr.Payload{DestRegister: f.third, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
	}
}

// The directions of a connection, as the kernel numbers them.
const (
	original = 0
	reply    = 1
)

// connection matches a direction and loads the key of the connection. Between the translations of its destination and its
// source, the client's address is the source of what it sends, and the destination of what it gets. (The first address
// of a connection can be looked up too, but nft(8) of Debian 12 aborts where it lists such a rule.)
func (f family) connection(direction uint32) []expr.Any {
	client := f.source
	if direction == reply {
		client = f.destination
	}
	return slices.Concat(
		equal(&expr.Ct{Key: expr.CtKeyDIRECTION, Register: 1}, []byte{byte(direction)}),
		[]expr.Any{
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: client, Len: f.length},
			&expr.Ct{Key: expr.CtKeyPROTODST, Register: f.second, Direction: original},
		})
}

// translated matches connections whose destination was translated, by anybody.
func translated() []expr.Any { return connectionHas(expr.CtKeySTATUS, destinationNAT) }

// Bits of a connection's status and state, as the kernel numbers them.
const (
	destinationNAT = 1 << 5 // IPS_DST_NAT
	related        = 1 << 2 // NF_CT_STATE_BIT(IP_CT_RELATED)
)

// connectionHas matches packets of connections that have a bit set.
func connectionHas(key expr.CtKey, bit uint32) []expr.Any {
	return []expr.Any{
		&expr.Ct{Key: key, Register: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: binaryutil.NativeEndian.PutUint32(bit), Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: make([]byte, 4)},
	}
}

func lookup(set *nftables.Set) []expr.Any {
	e := &expr.Lookup{SourceRegister: 1, SetName: set.Name, SetID: set.ID}
	if set.IsMap {
		e.DestRegister, e.IsDestRegSet = 1, true
	}
	return []expr.Any{e}
}

func verdict(kind expr.VerdictKind) []expr.Any { return []expr.Any{&expr.Verdict{Kind: kind}} }
