package observe

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/gopacket/gopacket/pcapgo"
)

// orient decides whether each packet went from client to server, and sorts the packets by time. It removes packets of
// other hosts, unless the client is a guess and the options are not strict.
func (c *Capture) orient(options Options, named []netip.Addr, flagged bool) {
	flagged = flagged && slices.ContainsFunc(c.Packets, func(p Packet) bool { return p.direction != pcapgo.NgEpbFlagDirectionUnknown })
	switch {
	case len(options.Clients) > 0:
		c.Clients, c.How = c.within(options.Clients), "given"
		c.byAddress(true)
	case flagged:
		c.How = "capture"
		c.byFlags()
	case len(named) > 0:
		c.Clients, c.How = slices.Compact(slices.SortedFunc(slices.Values(named), netip.Addr.Compare)), "capture"
		c.byAddress(true)
	default:
		c.guess()
		c.byAddress(options.Strict)
	}
	for i := 1; i < len(c.Packets); i++ {
		if back := c.Packets[i-1].Time.Sub(c.Packets[i].Time); back > 0 {
			c.Backwards = max(c.Backwards, back)
			c.Disordered = cmp.Or(c.Disordered, i+1)
		}
	}
	slices.SortStableFunc(c.Packets, func(a, b Packet) int { return a.Time.Compare(b.Time) })
}

// within returns the addresses that are in networks: those that were captured, and each network of one address.
func (c *Capture) within(networks []netip.Prefix) (clients []netip.Addr) {
	found := map[netip.Addr]bool{}
	add := func(a netip.Addr) {
		if !found[a] {
			found[a] = true
			clients = append(clients, a)
		}
	}
	for _, n := range networks {
		if n.IsSingleIP() {
			add(n.Addr())
		}
	}
	for _, f := range c.Flows {
		for _, a := range []netip.Addr{f.Client.Addr(), f.Server.Addr()} {
			if slices.ContainsFunc(networks, func(n netip.Prefix) bool { return n.Contains(a) }) {
				add(a)
			}
		}
	}
	return clients
}

// byFlags uses each packet's own direction flag, and removes packets without one.
func (c *Capture) byFlags() {
	seen := make([]bool, len(c.Flows))
	kept := c.Packets[:0]
	for _, p := range c.Packets {
		if p.direction == pcapgo.NgEpbFlagDirectionUnknown {
			c.Foreign++
			continue
		}
		p.Out = p.direction == pcapgo.NgEpbFlagDirectionOutbound
		kept = append(kept, p)
		if seen[p.Flow] {
			continue
		}
		seen[p.Flow] = true
		f := &c.Flows[p.Flow]
		if p.forward != p.Out { // the server sent the flow's first packet
			f.Client, f.Server = f.Server, f.Client
		}
		if a := f.Client.Addr(); !slices.Contains(c.Clients, a) {
			c.Clients = append(c.Clients, a)
		}
	}
	c.Packets = kept
}

// byAddress compares each flow's ends with the client's addresses.
func (c *Capture) byAddress(strict bool) {
	clients := map[netip.Addr]bool{}
	for _, a := range c.Clients {
		clients[a] = true
	}
	foreign, turned := make([]bool, len(c.Flows)), make([]bool, len(c.Flows))
	for i := range c.Flows {
		f := &c.Flows[i]
		client, server := clients[f.Client.Addr()], clients[f.Server.Addr()]
		foreign[i] = !client && !server && strict
		turned[i] = server && !client || server == client && !f.clientIsFirst()
		if turned[i] {
			f.Client, f.Server = f.Server, f.Client
		}
	}
	kept := c.Packets[:0]
	for _, p := range c.Packets {
		if foreign[p.Flow] {
			c.Foreign++
			continue
		}
		p.Out = p.forward != turned[p.Flow]
		kept = append(kept, p)
	}
	c.Packets = kept
}

// guess chooses the address that opened the conversations with the most packets as the client.
func (c *Capture) guess() {
	packets := make([]int, len(c.Flows))
	for _, p := range c.Packets {
		packets[p.Flow]++
	}
	votes := map[netip.Addr]int{}
	for i := range c.Flows {
		f := &c.Flows[i]
		opener := f.Server.Addr()
		if f.clientIsFirst() {
			opener = f.Client.Addr()
		}
		votes[opener] += packets[i]
	}
	c.How = "guessed"
	if len(votes) > 0 {
		c.Clients = []netip.Addr{slices.MaxFunc(slices.Collect(maps.Keys(votes)), func(a, b netip.Addr) int {
			return cmp.Or(cmp.Compare(votes[a], votes[b]), cmp.Compare(private(a), private(b)), b.Compare(a))
		})}
	}
}

// clientIsFirst reports whether the sender of the first packet, now called Client, probably opened the conversation: it
// sent the SYN, or the other side has a service's port or a public address.
func (f *Flow) clientIsFirst() bool {
	const reserved = 1024 // system ports are below (RFC 6335)
	client, server := f.Client, f.Server
	switch {
	case f.opened:
		return true
	case client.Port() < reserved && server.Port() >= reserved && f.Transport != "ip":
		return false
	case server.Port() < reserved && client.Port() >= reserved:
		return true
	case private(client.Addr()) != private(server.Addr()):
		return private(client.Addr()) == 1
	}
	return true
}

func private(a netip.Addr) int {
	if a.IsPrivate() {
		return 1
	}
	return 0
}
