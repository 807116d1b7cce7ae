package nat

import (
	"net/netip"
	"time"

	"heddle/internal/nft"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// layout is where a table's chains are in the kernel.
type layout struct {
	name         string
	ports        bool // a node: leases ports and hides clients behind its own address
	translate    *nftables.ChainHook
	closing      *nftables.ChainHook
	closingChain string
}

// localWord is in the names of clients' tables, each of which belongs to one process.
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

// A family has a table of its own, of the same name: nftables concatenates fields of fixed lengths.
type family struct {
	table      nftables.TableFamily
	number     int    // among families
	forwarding string // the kernel's sysctl
	icmp       byte   // the protocol's number
	address    nftables.SetDatatype
	// second and third are the registers of a lookup's second and third field. An nftables register has 16 bytes; the numbers
	// from 8 on are its quarters.
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

// leases maps source and destination of a packet to the new destination. Its elements expire.
func (l layout) leases(f family) *nftables.Set {
	s := l.set(f, 0, "leases", f.address, f.address, nftables.TypeInetService)
	s.IsMap, s.DataType = true, nftables.MustConcatSetType(f.address, nftables.TypeInetService)
	return s
}

// open is a node's set of keys with a lease. They expire with it.
func (l layout) open(f family) *nftables.Set {
	return l.set(f, 1, "open", f.address, nftables.TypeInetService)
}

// known is a node's set of keys that have or had a lease. Translated packets of keys without one are dropped.
func (l layout) known(f family) *nftables.Set {
	s := l.set(f, 2, "known", f.address, nftables.TypeInetService)
	s.Counter = true
	return s
}

// direct is a client's set of packets that must not leave untranslated, bypassing the nodes.
func (l layout) direct(f family) *nftables.Set {
	return l.set(f, 3, "direct", f.address, f.address, nftables.TypeInetService)
}

// set numbers sets within a transaction, since the library's own numbering is not safe for concurrent use.
func (l layout) set(f family, number uint32, name string, fields ...nftables.SetDatatype) *nftables.Set {
	return &nftables.Set{Table: l.table(f), ID: uint32(f.table)<<2 | number, Name: name, HasTimeout: true, Concatenation: true, Size: 2 * maxLeases,
		KeyType: nftables.MustConcatSetType(fields...)}
}

// write replaces the tables in one transaction by some that hold content. A closed family forwards only under a lease.
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

// fill copies a family's content into its new table.
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
		// ICMP errors of known connections (packet too big, unreachable) pass even if the chain is closed to others.
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

// closingChainOf returns the chain that packets pass after translation.
func (l layout) closingChainOf(f family, policy nftables.ChainPolicy) nftables.Chain {
	return nftables.Chain{Name: l.closingChain, Table: l.table(f), Type: nftables.ChainTypeFilter, Hooknum: l.closing,
		Priority: nftables.ChainPriorityFilter, Policy: &policy}
}

var tcp = nft.Protocol(unix.IPPROTO_TCP)

func (f family) v6() bool { return f.table == nftables.TableFamilyIPv6 }

// packet loads a packet's source and destination.
func (f family) packet() []expr.Any {
	return []expr.Any{nft.LoadAddress(f.v6(), nft.Source, 1), nft.LoadAddress(f.v6(), nft.Destination, f.second), nft.LoadPort(nft.Destination, f.third)}
}

// connection matches a direction and loads the connection's key. Between DNAT and SNAT, the client's address is the source
// of what it sends and the destination of what it receives. (The connection's original source could be looked up instead,
// but nft(8) of Debian 12 aborts when it lists such a rule.)
func (f family) connection(d nft.Direction) []expr.Any {
	client := nft.Source
	if d == nft.Reply {
		client = nft.Destination
	}
	return nft.Join(nft.InDirection(d), []expr.Any{nft.LoadAddress(f.v6(), client, 1),
		&expr.Ct{Key: expr.CtKeyPROTODST, Register: f.second, Direction: uint32(nft.Original)}})
}
