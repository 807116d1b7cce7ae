package nat

import (
	"net/netip"
	"time"

	"heddle/internal/nft"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
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

// localWord names the tables of clients, each of which belongs to one process.
const localWord = "local"

var (
	nodeLayout = layout{name: nft.Name("nat"), ports: true, translate: nftables.ChainHookPrerouting,
		closing: nftables.ChainHookForward, closingChain: "forward"}
	localLayout = layout{name: nft.OfProcess(localWord),
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
	// Registers of the second and third field of what is looked up, and found. A register of nftables has 16 bytes, and
	// numbers from 8 on are its quarters.
	second, third uint32
}

var families = []family{
	{table: nftables.TableFamilyIPv4, number: 0, forwarding: forwardIPv4, icmp: unix.IPPROTO_ICMP, address: nftables.TypeIPAddr, second: 9, third: 10},
	{table: nftables.TableFamilyIPv6, number: 1, forwarding: forwardIPv6, icmp: unix.IPPROTO_ICMPV6, address: nftables.TypeIP6Addr, second: 2, third: 3},
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

// write replaces the tables in one transaction by some that hold content. A family that is closed is forwarded under a
// lease or not at all.
func (l layout) write(c content, closed [2]bool) error {
	return nft.Change(func(conn *nftables.Conn) error {
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
		return nil
	})
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
	nft.Replace(conn, table)
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
	closing := [][]expr.Any{nft.Join(tcp, f.packet(), nft.Lookup(direct), nft.Drop)}
	if l.ports {
		// What tells an end that its packets are too big, or arrive nowhere, passes also where the chain is closed to others.
		closing = [][]expr.Any{nft.Join(nft.Protocol(f.icmp), nft.Related, nft.Accept)}
		for _, direction := range []nft.Direction{nft.Original, nft.Reply} {
			closing = append(closing,
				nft.Join(tcp, nft.Translated, f.connection(direction), nft.Lookup(known), nft.Lookup(open), nft.Accept),
				nft.Join(tcp, nft.Translated, f.connection(direction), nft.Lookup(known), nft.Drop))
		}
	}
	chain(nftables.Chain{Name: "translate", Type: nftables.ChainTypeNAT, Hooknum: l.translate, Priority: nftables.ChainPriorityNATDest},
		nft.Join(tcp, f.packet(), nft.Lookup(leases), []expr.Any{
			&expr.NAT{Type: expr.NATTypeDestNAT, Family: uint32(f.table), RegAddrMin: 1, RegProtoMin: f.second, Specified: true}}))
	chain(l.closingChainOf(f, policy), closing...)
	if l.ports {
		chain(nftables.Chain{Name: "back", Type: nftables.ChainTypeNAT, Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource},
			nft.Join(tcp, nft.Translated, f.connection(nft.Original), nft.Lookup(open), []expr.Any{&expr.Masq{}}))
	}
	return nil
}

// closingChainOf is the chain that packets pass after they were translated.
func (l layout) closingChainOf(f family, policy nftables.ChainPolicy) nftables.Chain {
	return nftables.Chain{Name: l.closingChain, Table: l.table(f), Type: nftables.ChainTypeFilter, Hooknum: l.closing,
		Priority: nftables.ChainPriorityFilter, Policy: &policy}
}

var tcp = nft.Protocol(unix.IPPROTO_TCP)

func (f family) v6() bool { return f.table == nftables.TableFamilyIPv6 }

// packet loads from where to where a packet goes.
func (f family) packet() []expr.Any {
	return []expr.Any{nft.LoadAddress(f.v6(), nft.Source, 1), nft.LoadAddress(f.v6(), nft.Destination, f.second), nft.LoadPort(nft.Destination, f.third)}
}

// connection matches a direction and loads the key of the connection. Between the translations of its destination and its
// source, the client's address is the source of what it sends, and the destination of what it gets. (The first address
// of a connection can be looked up too, but nft(8) of Debian 12 aborts where it lists such a rule.)
func (f family) connection(d nft.Direction) []expr.Any {
	client := nft.Source
	if d == nft.Reply {
		client = nft.Destination
	}
	return nft.Join(nft.InDirection(d), []expr.Any{nft.LoadAddress(f.v6(), client, 1),
		&expr.Ct{Key: expr.CtKeyPROTODST, Register: f.second, Direction: uint32(nft.Original)}})
}
