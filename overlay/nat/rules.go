package nat

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

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

var (
	nodeLayout = layout{name: "heddle_nat", ports: true, translate: nftables.ChainHookPrerouting,
		closing: nftables.ChainHookForward, closingChain: "forward"}
	localLayout = layout{name: "heddle_local_", // and the number of the process
		translate: nftables.ChainHookOutput, closing: nftables.ChainHookOutput, closingChain: "closing"}
)

func (l layout) table(f family) *nftables.Table {
	return &nftables.Table{Name: l.name, Family: f.table}
}

// key is what a packet is known by: where it came from, and where it wanted to go.
type key struct {
	client netip.Addr
	listen netip.AddrPort
}

func keyOf(r Rule) key { return key{r.Client, r.Listen} }

// A family has a table of its own, of the same name: nftables joins fields of fixed lengths.
type family struct {
	table   nftables.TableFamily
	address nftables.SetDatatype
	// Where the client's and this machine's address lie in the IP header (RFC 791, RFC 8200), and their length.
	source, destination, length uint32
	// Registers of a key's second and third field, and of the port in a value. A register of nftables has 16 bytes, and
	// numbers from 8 on are its quarters.
	second, third, port uint32
}

var families = []family{
	{table: nftables.TableFamilyIPv4, address: nftables.TypeIPAddr, source: 12, destination: 16, length: 4, second: 9, third: 10, port: 9},
	{table: nftables.TableFamilyIPv6, address: nftables.TypeIP6Addr, source: 8, destination: 24, length: 16, second: 2, third: 3, port: 2},
}

func familyOf(a netip.Addr) family {
	if a.Is4() {
		return families[0]
	}
	return families[1]
}

// The library numbers sets for a transaction itself, but not for use from several goroutines.
const (
	idLeases = 0
	idKnown  = 1
)

// leases is the map from keys to where they go, whose elements end by themselves.
func (l layout) leases(f family) *nftables.Set {
	return &nftables.Set{Table: l.table(f), ID: f.id(idLeases), Name: "leases", IsMap: true, HasTimeout: true, Concatenation: true, Size: maxLeases,
		KeyType:  nftables.MustConcatSetType(f.address, f.address, nftables.TypeInetService),
		DataType: nftables.MustConcatSetType(f.address, nftables.TypeInetService)}
}

// known is the set of keys that have or had a lease: what is of them, and has none, is dropped.
func (l layout) known(f family) *nftables.Set {
	return &nftables.Set{Table: l.table(f), ID: f.id(idKnown), Name: "known", HasTimeout: true, Concatenation: true, Counter: true, Size: 2 * maxLeases,
		KeyType: nftables.MustConcatSetType(f.address, f.address, nftables.TypeInetService)}
}

func (f family) id(set uint32) uint32 { return uint32(f.table)<<1 | set }

// write replaces the tables in one transaction by some that hold content. Where closed, IPv4 is forwarded under a lease
// or not at all.
func (l layout) write(c content, closed bool) error {
	conn, err := nftables.New()
	if err != nil {
		return err
	}
	for _, f := range families {
		policy := nftables.ChainPolicyAccept
		if closed && f.table == nftables.TableFamilyIPv4 {
			policy = nftables.ChainPolicyDrop
		}
		if err := l.build(conn, f, policy); err != nil {
			return err
		}
	}
	for _, lease := range c.leases {
		if err := l.addElements(conn, lease.Rule, max(time.Until(lease.Until), time.Millisecond)); err != nil {
			return err
		}
	}
	for _, k := range c.known {
		if l.ports && !c.holds(k) {
			if err := conn.SetAddElements(l.known(familyOf(k.client)), []nftables.SetElement{{Key: k.bytes()}}); err != nil {
				return err
			}
		}
	}
	return conn.Flush()
}

func (l layout) build(conn *nftables.Conn, f family, policy nftables.ChainPolicy) error {
	table, leases, known := l.table(f), l.leases(f), l.known(f)
	conn.AddTable(table) // so that there is one to delete
	conn.DelTable(table)
	conn.AddTable(table)
	if err := errors.Join(conn.AddSet(leases, nil), conn.AddSet(known, nil)); err != nil {
		return err
	}
	chain := func(c nftables.Chain, rules ...[]expr.Any) {
		c.Table = table
		conn.AddChain(&c)
		for _, r := range rules {
			conn.AddRule(&nftables.Rule{Table: table, Chain: &c, Exprs: r})
		}
	}
	chain(nftables.Chain{Name: "translate", Type: nftables.ChainTypeNAT, Hooknum: l.translate, Priority: nftables.ChainPriorityNATDest},
		slices.Concat(tcp(), f.packet(), lookup(leases), []expr.Any{
			&expr.NAT{Type: expr.NATTypeDestNAT, Family: uint32(f.table), RegAddrMin: 1, RegProtoMin: f.port, Specified: true}}))
	chain(nftables.Chain{Name: l.closingChain, Type: nftables.ChainTypeFilter, Hooknum: l.closing, Priority: nftables.ChainPriorityFilter, Policy: &policy},
		slices.Concat(tcp(), f.connection(), lookup(known), lookup(leases), verdict(expr.VerdictAccept)),
		slices.Concat(tcp(), f.connection(), lookup(known), []expr.Any{&expr.Counter{}}, verdict(expr.VerdictDrop)))
	if l.ports {
		chain(nftables.Chain{Name: "back", Type: nftables.ChainTypeNAT, Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource},
			slices.Concat(tcp(), f.connection(), lookup(leases), []expr.Any{&expr.Masq{}}))
	}
	return nil
}

func tcp() []expr.Any {
	return equal(&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1}, []byte{unix.IPPROTO_TCP})
}

func equal(load expr.Any, data []byte) []expr.Any {
	return []expr.Any{load, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: data}}
}

// packet loads the key of a packet that was not translated.
func (f family) packet() []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: f.source, Len: f.length},
		&expr.Payload{DestRegister: f.second, Base: expr.PayloadBaseNetworkHeader, Offset: f.destination, Len: f.length},
		&expr.Payload{DestRegister: f.third, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
	}
}

// connection loads the key of the first packet of a packet's connection, before it was translated.
func (f family) connection() []expr.Any {
	return []expr.Any{
		&expr.Ct{Key: expr.CtKeySRC, Register: 1},
		&expr.Ct{Key: expr.CtKeyDST, Register: f.second},
		&expr.Ct{Key: expr.CtKeyPROTODST, Register: f.third},
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

// put lets a rule hold for ttl, in place of what was there, in one transaction: kernels before 6.13 do not prolong an
// element that is there.
func (t *Table) put(r Rule, ttl time.Duration, held, known bool) error {
	conn, err := nftables.New()
	if err != nil {
		return err
	}
	f, k := familyOf(r.Client), []nftables.SetElement{{Key: keyOf(r).bytes()}}
	if held {
		if err := conn.SetDeleteElements(t.leases(f), k); err != nil {
			return err
		}
	}
	if counts := held && t.ports; known && counts { // it goes on counting
		err = conn.SetAddElements(t.leases(f), []nftables.SetElement{element(r, ttl)})
	} else {
		if known {
			err = conn.SetDeleteElements(t.layout.known(f), k)
		}
		err = errors.Join(err, t.addElements(conn, r, ttl))
	}
	if err != nil {
		return err
	}
	return conn.Flush()
}

// addElements adds a lease. A node knows it until its connections are forgotten, since they outlive it in the kernel; a
// client for as long as its kernel may send, but not longer, since it can reach the server only by nodes meanwhile.
func (l layout) addElements(conn *nftables.Conn, r Rule, ttl time.Duration) error {
	f, known := familyOf(r.Client), nftables.SetElement{Key: keyOf(r).bytes()}
	if !l.ports {
		known.Timeout = ttl + lingers
	}
	return errors.Join(
		conn.SetAddElements(l.known(f), []nftables.SetElement{known}),
		conn.SetAddElements(l.leases(f), []nftables.SetElement{element(r, ttl)}))
}

func element(r Rule, ttl time.Duration) nftables.SetElement {
	return nftables.SetElement{Key: keyOf(r).bytes(), Val: join(r.To), Timeout: ttl, Comment: r.Owner}
}

// join gives an address and port as nftables does: each field padded to 4 bytes, in the order of the network.
func join(a netip.AddrPort) []byte {
	return append(binary.BigEndian.AppendUint16(a.Addr().AsSlice(), a.Port()), 0, 0)
}

func (k key) bytes() []byte { return append(k.client.AsSlice(), join(k.listen)...) }

// parseKey and parseTo read what the kernel gives back.
func parseKey(raw []byte) (key, error) {
	n := 4
	if len(raw) == 36 {
		n = 16
	}
	if len(raw) != 2*n+4 {
		return key{}, fmt.Errorf("an element's key has %d bytes", len(raw))
	}
	client, _ := netip.AddrFromSlice(raw[:n])
	listen, err := parseTo(raw[n:])
	return key{client, listen}, err
}

func parseTo(raw []byte) (netip.AddrPort, error) {
	if len(raw) != 8 && len(raw) != 20 {
		return netip.AddrPort{}, fmt.Errorf("an element's value has %d bytes", len(raw))
	}
	n := len(raw) - 4
	a, _ := netip.AddrFromSlice(raw[:n])
	return netip.AddrPortFrom(a, binary.BigEndian.Uint16(raw[n:])), nil
}

// content is what a table holds.
type content struct {
	leases []Lease
	known  []key
}

func (c content) holds(k key) bool {
	return slices.ContainsFunc(c.leases, func(l Lease) bool { return keyOf(l.Rule) == k })
}

func (c content) knows(k key) bool { return slices.Contains(c.known, k) }

// read gives what the kernel holds now, and nothing where there is no table.
func (l layout) read() (content, error) {
	conn, err := nftables.New()
	if err != nil {
		return content{}, err
	}
	var c content
	for _, f := range families {
		bytes := map[key]uint64{}
		known, err := conn.GetSetElements(l.known(f))
		if absent(err) {
			return content{}, nil
		} else if err != nil {
			return content{}, err
		}
		for _, e := range known {
			k, err := parseKey(e.Key)
			if err != nil {
				return content{}, err
			}
			c.known = append(c.known, k)
			if e.Counter != nil {
				bytes[k] = e.Counter.Bytes
			}
		}
		leases, err := conn.GetSetElements(l.leases(f))
		if err != nil && !absent(err) {
			return content{}, err
		}
		now := time.Now()
		for _, e := range leases {
			k, err := parseKey(e.Key)
			if err != nil {
				return content{}, err
			}
			to, err := parseTo(e.Val)
			if err != nil {
				return content{}, err
			}
			owner := strings.TrimRight(e.Comment, "\x00")
			c.leases = append(c.leases, Lease{Rule{k.client, k.listen, to, owner}, now.Add(e.Expires), bytes[k]})
		}
	}
	slices.SortFunc(c.leases, func(a, b Lease) int {
		if d := a.Client.Compare(b.Client); d != 0 {
			return d
		}
		return a.Listen.Compare(b.Listen)
	})
	return c, nil
}

// absent reports that there is no such table. The library gives the kernel's error only as text.
func absent(err error) bool {
	return err != nil && (errors.Is(err, unix.ENOENT) || strings.Contains(err.Error(), unix.ENOENT.Error()))
}

// leftClosed reports that a table is there which lets nothing be forwarded without a lease: that an earlier process set
// forwarding.
func (l layout) leftClosed() bool {
	conn, err := nftables.New()
	if err != nil {
		return false
	}
	chain, err := conn.ListChain(l.table(families[0]), l.closingChain)
	return err == nil && chain.Policy != nil && *chain.Policy == nftables.ChainPolicyDrop
}

// drop ends one lease.
func (t *Table) drop(r Rule) error {
	conn, err := nftables.New()
	if err != nil {
		return err
	}
	if err := conn.SetDeleteElements(t.leases(familyOf(r.Client)), []nftables.SetElement{{Key: keyOf(r).bytes()}}); err != nil {
		return err
	}
	return conn.Flush()
}

// sweep forgets the keys whose lease has ended. A node forgets their connections first. Those of a client end by
// themselves.
func (t *Table) sweep() error {
	if !t.ports {
		return nil
	}
	all, err := t.read()
	if err != nil {
		return err
	}
	ended := slices.DeleteFunc(slices.Clone(all.known), all.holds)
	if len(ended) == 0 {
		return nil
	}
	forget(ended)
	for _, k := range ended {
		conn, err := nftables.New()
		if err != nil {
			return err
		}
		if err := conn.SetDeleteElements(t.layout.known(familyOf(k.client)), []nftables.SetElement{{Key: k.bytes()}}); err != nil {
			return err
		}
		if err := conn.Flush(); err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	return nil
}

// removeEmpty removes the tables that processes which are gone left for themselves: all that was in them has ended.
func removeEmpty(prefix string) error {
	conn, err := nftables.New()
	if err != nil {
		return err
	}
	tables, err := conn.ListTablesOfFamily(nftables.TableFamilyIPv4)
	if err != nil {
		return err
	}
	for _, table := range tables {
		pid, ours := strings.CutPrefix(table.Name, prefix)
		if _, err := os.Stat("/proc/" + pid); !ours || err == nil {
			continue
		}
		l := localLayout
		l.name = table.Name
		if c, err := l.read(); err != nil || len(c.known)+len(c.leases) > 0 {
			continue // a process that this one does not see, or something left to stop
		}
		for _, f := range families {
			conn.DelTable(l.table(f))
		}
	}
	return conn.Flush()
}
