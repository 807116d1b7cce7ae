package tunnel

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"heddle/internal/journal"
	"heddle/path"
)

// firewall is the tunnel's nftables table. It is made in one transaction, and does up to two things:
//
//   - KillSwitch: nothing leaves this machine, nor is forwarded, but over the tunnel, with the tunnel's mark, over lo,
//     or to the machine itself; and what keeps the paths' addresses alive: DHCP (RFC 2131, RFC 9915) and Neighbor
//     Discovery (RFC 4861). IPv6 is kept in as well where the tunnel has IPv4 only.
//   - Addresses: as wg-quick(8) does, nobody on another interface may reach the tunnel's own addresses, and answers to
//     marked packets get the mark back, so that reverse path filtering finds the way they came.
type firewall struct {
	Table      string       `json:"table"`
	Device     string       `json:"device"`
	Mark       uint32       `json:"mark"`
	KillSwitch bool         `json:"kill_switch"`
	Addresses  []netip.Addr `json:"addresses,omitempty"`
}

const tablePrefix = "heddle_"

// tableName gives the table of a tunnel. nft(8) takes letters, digits and '_' in a name; other bytes become _XX.
func tableName(name string) string {
	var b strings.Builder
	b.WriteString(tablePrefix)
	for _, c := range []byte(name) {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' {
			b.WriteByte(c)
		} else {
			b.WriteString("_" + hex.EncodeToString([]byte{c}))
		}
	}
	return b.String()
}

func (c *firewall) String() string {
	text := "nft add table inet " + c.Table
	if c.KillSwitch {
		text += fmt.Sprintf(" (kill switch: only lo, %s, mark %d, DHCP and Neighbor Discovery may leave)", c.Device, c.Mark)
	}
	if len(c.Addresses) > 0 {
		text += " (answers keep the mark; the tunnel's addresses are reached through the tunnel only)"
	}
	return text
}

// Apply replaces a table that is there by its name: between the two nothing is let out.
func (c *firewall) Apply() error {
	conn, err := nftables.New()
	if err != nil {
		return err
	}
	table := &nftables.Table{Name: c.Table, Family: nftables.TableFamilyINet}
	conn.AddTable(table) // so that there is one to delete
	conn.DelTable(table)
	conn.AddTable(table)
	if c.KillSwitch {
		c.addKillSwitch(conn, table)
	}
	if len(c.Addresses) > 0 {
		c.addReturnPath(conn, table)
	}
	return conn.Flush()
}

func (c *firewall) Undo() error {
	conn, err := nftables.New()
	if err != nil {
		return err
	}
	conn.DelTable(&nftables.Table{Name: c.Table, Family: nftables.TableFamilyINet})
	if err := conn.Flush(); err != nil && !journal.Gone(err) {
		return err
	}
	return nil
}

func (c *firewall) addKillSwitch(conn *nftables.Conn, table *nftables.Table) {
	drop := nftables.ChainPolicyDrop
	output := conn.AddChain(&nftables.Chain{Name: killSwitchChain, Table: table, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookOutput, Priority: nftables.ChainPriorityFilter, Policy: &drop})
	forward := conn.AddChain(&nftables.Chain{Name: "forward", Table: table, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookForward, Priority: nftables.ChainPriorityFilter, Policy: &drop})
	add := func(chain *nftables.Chain, parts ...[]expr.Any) {
		conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: join(parts...)})
	}
	add(output, interfaceIs(expr.MetaKeyOIFNAME, "lo"), accept)
	add(output, interfaceIs(expr.MetaKeyOIFNAME, c.Device), accept)
	if c.Mark != 0 {
		add(output, markIs(c.Mark), accept)
	}
	add(output, addressTypeIs(expr.Fib{FlagDADDR: true}, expr.CmpOpEq, unix.RTN_LOCAL), accept)
	add(output, familyIs(unix.NFPROTO_IPV4), protocolIs(unix.IPPROTO_UDP), portsAre(68, 67), accept)
	add(output, familyIs(unix.NFPROTO_IPV6), protocolIs(unix.IPPROTO_UDP), portsAre(546, 547), accept)
	for _, kind := range neighborDiscovery {
		// RFC 4861, section 7.1: a hop limit of 255 proves that no router forwarded it, nor will one.
		add(output, protocolIs(unix.IPPROTO_ICMPV6), networkByteIs(7, kind.hops), transportByteIs(0, kind.kind), accept)
	}
	add(output, reject)
	add(forward, interfaceIs(expr.MetaKeyOIFNAME, c.Device), accept)
	add(forward, interfaceIs(expr.MetaKeyIIFNAME, c.Device), accept)
	add(forward, reject)
}

const killSwitchChain = "output"

// neighborDiscovery are the ICMPv6 types that keep an IPv6 address alive, with their hop limit: router solicitation,
// neighbor solicitation and advertisement (RFC 4861), and the multicast listener report that lets a switch pass the
// solicitations of others (RFC 3810).
var neighborDiscovery = []struct{ kind, hops byte }{{133, 255}, {135, 255}, {136, 255}, {143, 1}}

func (c *firewall) addReturnPath(conn *nftables.Conn, table *nftables.Table) {
	raw := conn.AddChain(&nftables.Chain{Name: "preraw", Table: table, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityRaw})
	in := conn.AddChain(&nftables.Chain{Name: "premangle", Table: table, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityMangle})
	out := conn.AddChain(&nftables.Chain{Name: "postmangle", Table: table, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityMangle})
	for _, a := range c.Addresses {
		conn.AddRule(&nftables.Rule{Table: table, Chain: raw, Exprs: join(
			interfaceIsNot(expr.MetaKeyIIFNAME, c.Device), destinationIs(a),
			addressTypeIs(expr.Fib{FlagSADDR: true}, expr.CmpOpNeq, unix.RTN_LOCAL),
			[]expr.Any{&expr.Verdict{Kind: expr.VerdictDrop}})})
	}
	mark := binaryutil.NativeEndian.PutUint32(c.Mark)
	setMark := []expr.Any{&expr.Immediate{Register: 1, Data: mark}}
	conn.AddRule(&nftables.Rule{Table: table, Chain: out, Exprs: join(protocolIs(unix.IPPROTO_UDP), markIs(c.Mark), setMark,
		[]expr.Any{&expr.Ct{Key: expr.CtKeyMARK, Register: 1, SourceRegister: true}})})
	conn.AddRule(&nftables.Rule{Table: table, Chain: in, Exprs: join(protocolIs(unix.IPPROTO_UDP),
		[]expr.Any{&expr.Ct{Key: expr.CtKeyMARK, Register: 1}, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: mark}}, setMark,
		[]expr.Any{&expr.Meta{Key: expr.MetaKeyMARK, Register: 1, SourceRegister: true}})})
}

// otherKillSwitch gives an error where another tunnel's kill switch would refuse this one's packets.
func otherKillSwitch(own string) error {
	conn, err := nftables.New()
	if err != nil {
		return err
	}
	chains, err := conn.ListChainsOfTableFamily(nftables.TableFamilyINet)
	if err != nil {
		return err
	}
	for _, c := range chains {
		if c.Name == killSwitchChain && strings.HasPrefix(c.Table.Name, tablePrefix) && c.Table.Name != own {
			return &path.Error{What: "kill switch " + c.Table.Name, Why: "another tunnel's kill switch is up and would refuse this one's packets",
				Hint: "end that tunnel with `heddle down NAME` (also after a crash), or start it with --kill-switch=false"}
		}
	}
	return nil
}
