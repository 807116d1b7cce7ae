package tunnel

import (
	"fmt"
	"net/netip"
	"slices"
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
//     if the tunnel has IPv4 only. With Within, only packets to these prefixes are blocked.
//   - Addresses: as with wg-quick(8), other interfaces cannot reach the tunnel's own addresses. Answers to marked packets
//     get the mark back, so that reverse path filtering accepts them.
type firewall struct {
	Table      string       `json:"table"`
	Device     string       `json:"device"`
	Mark       uint32       `json:"mark"`
	KillSwitch bool         `json:"kill_switch"`
	Addresses  []netip.Addr `json:"addresses,omitempty"`
	// Within limits the kill switch to packets to these prefixes, less those in Beside. The longest prefix decides.
	Within []netip.Prefix `json:"within,omitempty"`
	Beside []netip.Prefix `json:"beside,omitempty"`
}

func (c *firewall) String() string {
	text := "nft add table inet " + c.Table
	switch {
	case c.KillSwitch && len(c.Within) > 0:
		text += fmt.Sprintf(" (guard: packets to %s leave by %s or not at all", list(c.Within), c.Device)
		if len(c.Beside) > 0 {
			text += "; not to " + list(c.Beside) + ", which this machine has narrower routes for"
		}
		text += ")"
	case c.KillSwitch:
		text += fmt.Sprintf(" (kill switch: only lo, %s, mark %d, DHCP and Neighbor Discovery may leave)", c.Device, c.Mark)
	}
	if len(c.Addresses) > 0 {
		text += " (answers keep the mark; the tunnel's addresses are reached through the tunnel only)"
	}
	return text
}

func list(prefixes []netip.Prefix) string {
	var words []string
	for _, p := range prefixes {
		words = append(words, p.String())
	}
	return strings.Join(words, ", ")
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

// Undo ends what the kernel would go on sending from the tunnel's addresses. The tunnel itself has ended.
func (c *firewall) Undo() error {
	if c.KillSwitch {
		for _, a := range c.own() {
			if a.Is6() {
				endConnections(a)
			}
		}
	}
	return nft.Remove(nft.Inet(c.Table))
}

// own returns the tunnel's addresses, and with Within also those of single peers.
func (c *firewall) own() []netip.Addr {
	all := slices.Clone(c.Addresses)
	for _, p := range c.Within {
		if p.IsSingleIP() {
			all = append(all, p.Addr())
		}
	}
	return all
}

func (c *firewall) addKillSwitch(conn *nftables.Conn, table *nftables.Table) {
	policy, name := nftables.ChainPolicyDrop, killSwitchChain
	if len(c.Within) > 0 {
		policy, name = nftables.ChainPolicyAccept, "guard"
	}
	output := conn.AddChain(&nftables.Chain{Name: name, Table: table, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookOutput, Priority: nftables.ChainPriorityFilter, Policy: &policy})
	forward := conn.AddChain(&nftables.Chain{Name: "forward", Table: table, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookForward, Priority: nftables.ChainPriorityFilter, Policy: &policy})
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
	add(forward, nft.Out(c.Device), nft.Accept)
	add(forward, nft.In(c.Device), nft.Accept)
	for _, refusal := range c.refusals() {
		add(output, refusal)
		add(forward, refusal)
	}
}

// refusals are the rules about packets that nothing else lets out.
func (c *firewall) refusals() [][]expr.Any {
	if len(c.Within) == 0 {
		return [][]expr.Any{nft.Reject}
	}
	var rules [][]expr.Any
	for _, p := range longestFirst(slices.Concat(c.Within, c.Beside)) {
		verdict := nft.Reject
		if slices.Contains(c.Beside, p) {
			verdict = nft.Accept
		}
		rules = append(rules, nft.Join(nft.Within(p, nft.Destination), verdict))
	}
	return rules
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
	// TCP too, unlike wg-quick: a path may be a proxy's.
	conn.AddRule(&nftables.Rule{Table: table, Chain: out, Exprs: nft.Join(nft.Mark(c.Mark), nft.SetConnectionMark(c.Mark))})
	conn.AddRule(&nftables.Rule{Table: table, Chain: in, Exprs: nft.Join(nft.ConnectionMark(c.Mark), nft.SetMark(c.Mark))})
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
