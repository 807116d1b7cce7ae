package tunnel

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"heddle/internal/nft"
	"heddle/path"
)

// firewall is the tunnel's nftables table, made in one transaction. It does up to two things:
//
//   - KillSwitch: packets leave or are forwarded only over the tunnel, with its mark, over lo or to this machine itself. DHCP
//     (RFC 2131, RFC 9915) and Neighbor Discovery (RFC 4861) pass too, to keep the paths' addresses. IPv6 is blocked even
//     if the tunnel has IPv4 only.
//   - Addresses: as with wg-quick(8), other interfaces cannot reach the tunnel's own addresses. Answers to marked packets
//     get the mark back, so that reverse path filtering accepts them.
type firewall struct {
	Table      string       `json:"table"`
	Device     string       `json:"device"`
	Mark       uint32       `json:"mark"`
	KillSwitch bool         `json:"kill_switch"`
	Addresses  []netip.Addr `json:"addresses,omitempty"`
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

func (c *firewall) Guards() bool { return c.KillSwitch }

// Apply replaces a table of this name in one step, so that nothing leaves in between.
func (c *firewall) Apply() error {
	return nft.Change(func(conn *nftables.Conn) error {
		table := nft.Inet(c.Table)
		nft.Replace(conn, table)
		if c.KillSwitch {
			c.addKillSwitch(conn, table)
		}
		if len(c.Addresses) > 0 {
			c.addReturnPath(conn, table)
		}
		return nil
	})
}

func (c *firewall) Undo() error { return nft.Remove(nft.Inet(c.Table)) }

func (c *firewall) addKillSwitch(conn *nftables.Conn, table *nftables.Table) {
	drop := nftables.ChainPolicyDrop
	output := conn.AddChain(&nftables.Chain{Name: killSwitchChain, Table: table, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookOutput, Priority: nftables.ChainPriorityFilter, Policy: &drop})
	forward := conn.AddChain(&nftables.Chain{Name: "forward", Table: table, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookForward, Priority: nftables.ChainPriorityFilter, Policy: &drop})
	add := func(chain *nftables.Chain, parts ...[]expr.Any) {
		conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: nft.Join(parts...)})
	}
	add(output, nft.Out("lo"), nft.Accept)
	add(output, nft.Out(c.Device), nft.Accept)
	if c.Mark != 0 {
		add(output, nft.Mark(c.Mark), nft.Accept)
	}
	add(output, nft.Local(nft.Destination, true), nft.Accept)
	add(output, nft.IPv6(false), nft.Protocol(unix.IPPROTO_UDP), nft.Ports(68, 67), nft.Accept)
	add(output, nft.IPv6(true), nft.Protocol(unix.IPPROTO_UDP), nft.Ports(546, 547), nft.Accept)
	for _, kind := range neighborDiscovery {
		// RFC 4861, section 7.1: a hop limit of 255 proves that no router forwarded it, or will.
		add(output, nft.Protocol(unix.IPPROTO_ICMPV6), nft.NetworkByte(7, kind.hops), nft.TransportByte(0, kind.kind), nft.Accept)
	}
	add(output, nft.Reject)
	add(forward, nft.Out(c.Device), nft.Accept)
	add(forward, nft.In(c.Device), nft.Accept)
	add(forward, nft.Reject)
}

const killSwitchChain = "output"

// neighborDiscovery lists ICMPv6 types that keep an IPv6 address alive, with their hop limits: router solicitation, neighbor
// solicitation and advertisement (RFC 4861), and the listener report that lets a switch pass solicitations (RFC 3810).
var neighborDiscovery = []struct{ kind, hops byte }{{133, 255}, {135, 255}, {136, 255}, {143, 1}}

func (c *firewall) addReturnPath(conn *nftables.Conn, table *nftables.Table) {
	raw := conn.AddChain(&nftables.Chain{Name: "preraw", Table: table, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityRaw})
	in := conn.AddChain(&nftables.Chain{Name: "premangle", Table: table, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityMangle})
	out := conn.AddChain(&nftables.Chain{Name: "postmangle", Table: table, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityMangle})
	for _, a := range c.Addresses {
		conn.AddRule(&nftables.Rule{Table: table, Chain: raw, Exprs: nft.Join(
			nft.NotIn(c.Device), nft.Address(a, nft.Destination), nft.Local(nft.Source, false), nft.Drop)})
	}
	udp := nft.Protocol(unix.IPPROTO_UDP)
	conn.AddRule(&nftables.Rule{Table: table, Chain: out, Exprs: nft.Join(udp, nft.Mark(c.Mark), nft.SetConnectionMark(c.Mark))})
	conn.AddRule(&nftables.Rule{Table: table, Chain: in, Exprs: nft.Join(udp, nft.ConnectionMark(c.Mark), nft.SetMark(c.Mark))})
}

func tableName(tunnel string) string { return nft.Name(tunnel) }

// otherKillSwitch fails if another tunnel's kill switch would drop this tunnel's packets.
func otherKillSwitch(own string) error {
	conn, err := nft.Connect()
	if err != nil {
		return err
	}
	chains, err := conn.ListChainsOfTableFamily(nftables.TableFamilyINet)
	if err != nil {
		return err
	}
	for _, c := range chains {
		if c.Name == killSwitchChain && strings.HasPrefix(c.Table.Name, nft.Prefix+"_") && c.Table.Name != own {
			return &path.Error{What: "kill switch " + c.Table.Name, Why: "another tunnel's kill switch is up and would refuse this one's packets",
				Hint: "end that tunnel with `heddle down NAME` (also after a crash), or start it with --kill-switch=false"}
		}
	}
	return nil
}
