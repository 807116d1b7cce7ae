package backend

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"heddle/internal/iprule"
	"heddle/internal/journal"
)

// Rule is a policy routing rule. Its priority is chosen before it is made, so that undoing removes no other rule.
type Rule struct {
	V6       bool           `json:"v6"`
	Priority int            `json:"priority"`
	Mark     uint32         `json:"mark,omitempty"`  // of the packet, 0 for any
	To       netip.AddrPort `json:"to,omitzero"`     // UDP destination, if valid
	Table    int            `json:"table,omitempty"` // table to look in; 0: continue at priority Goto
	Goto     int            `json:"goto,omitempty"`
}

func (c *Rule) String() string { return "ip rule add " + c.netlink().String() }

func (c *Rule) netlink() *netlink.Rule {
	r := netlink.NewRule()
	r.Family, r.Priority, r.Mark, r.Table = iprule.Family(c.V6), c.Priority, c.Mark, c.Table
	if c.To.IsValid() {
		r.Dst = host(c.To.Addr())
		r.IPProto = unix.IPPROTO_UDP
		r.Dport = netlink.NewRulePortRange(c.To.Port(), c.To.Port())
	}
	if c.Table == 0 {
		r.Table, r.Goto = -1, c.Goto
	}
	return r
}

func host(a netip.Addr) *net.IPNet {
	return &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}
}

func (c *Rule) Apply() error { return netlink.RuleAdd(c.netlink()) }

func (c *Rule) Undo() error { return journal.IgnoreGone(netlink.RuleDel(c.netlink())) }

// Table is a routing table of the session's own. Its routes change while the session runs. Undoing removes them.
type Table struct {
	V6        bool `json:"v6"`
	Number    int  `json:"number"`
	Blackhole bool `json:"blackhole"` // add a blackhole route below all others
}

// lastMetric is the largest metric.
const lastMetric = 1<<31 - 1

func (c *Table) String() string { return fmt.Sprintf("ip route add default table %d", c.Number) }

// Apply adds the blackhole route.
func (c *Table) Apply() error {
	if !c.Blackhole {
		return nil
	}
	return netlink.RouteReplace(&netlink.Route{Table: c.Number, Dst: c.everything(), Type: unix.RTN_BLACKHOLE, Priority: lastMetric})
}

// Undo removes all routes of the table.
func (c *Table) Undo() error {
	routes, err := netlink.RouteListFiltered(iprule.Family(c.V6), &netlink.Route{Table: c.Number}, netlink.RT_FILTER_TABLE)
	if err != nil {
		return err
	}
	for _, r := range routes {
		if r.Dst == nil {
			r.Dst = c.everything()
		}
		if err := journal.IgnoreGone(netlink.RouteDel(&r)); err != nil {
			return err
		}
	}
	return nil
}

func (c *Table) everything() *net.IPNet {
	if c.V6 {
		return &net.IPNet{IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)}
	}
	return &net.IPNet{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)}
}

// Replace sends everything in the table by a hop. It replaces the route atomically.
func (c *Table) Replace(h Hop, server netip.Addr) error {
	r := &netlink.Route{Table: c.Number, Dst: c.everything(), LinkIndex: h.Index, Src: h.Source.AsSlice(), MTU: h.MTU, Priority: 1}
	if h.Next != server {
		r.Gw = h.Next.AsSlice()
		r.Flags = int(netlink.FLAG_ONLINK) // the route to the gateway is in another table
	} else if !c.V6 {
		r.Scope = netlink.SCOPE_LINK
	}
	return netlink.RouteReplace(r)
}

// Holds reports whether the table has a route by the hop's device. The kernel removes it when the device goes down.
func (c *Table) Holds(h Hop) bool {
	routes, err := netlink.RouteListFiltered(iprule.Family(c.V6), &netlink.Route{Table: c.Number, LinkIndex: h.Index}, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_OIF)
	return err == nil && len(routes) > 0
}

// Clear removes the route that Replace made.
func (c *Table) Clear() error {
	return journal.IgnoreGone(netlink.RouteDel(&netlink.Route{Table: c.Number, Dst: c.everything(), Priority: 1}))
}
