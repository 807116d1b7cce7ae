package observe

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/gopacket/gopacket/pcapgo"
)

// orient decides whether each packet went from client to server, and sorts the packets by time. If the client is known
// for certain, it removes packets of other hosts.
func (c *Capture) orient(given, written []netip.Addr, flagged bool) {
	switch {
	case len(given) > 0:
		c.Clients, c.How = slices.Clone(given), "given"
	case flagged:
		c.How = "capture"
	case len(written) > 0:
		c.Clients, c.How = slices.Compact(slices.SortedFunc(slices.Values(written), netip.Addr.Compare)), "capture"
	default:
		c.guess()
	}
	if flagged && len(given) == 0 {
		c.byFlags()
	} else {
		c.byAddress()
	}
	slices.SortStableFunc(c.Packets, func(a, b Packet) int { return a.Time.Compare(b.Time) })
}

// byFlags uses each packet's own direction flag.
func (c *Capture) byFlags() {
	seen := make([]bool, len(c.Flows))
	for i := range c.Packets {
		p := &c.Packets[i]
		p.Out = p.direction == pcapgo.NgEpbFlagDirectionOutbound
		if seen[p.Flow] {
			continue
		}
		seen[p.Flow] = true
		f := &c.Flows[p.Flow]
		if !p.Out { // the server sent the flow's first packet
			f.Client, f.Server = f.Server, f.Client
		}
		if a := f.Client.Addr(); !slices.Contains(c.Clients, a) {
			c.Clients = append(c.Clients, a)
		}
	}
}

// byAddress compares each flow's ends with the client's addresses.
func (c *Capture) byAddress() {
	foreign, turned := make([]bool, len(c.Flows)), make([]bool, len(c.Flows))
	for i := range c.Flows {
		f := &c.Flows[i]
		client, server := slices.Contains(c.Clients, f.Client.Addr()), slices.Contains(c.Clients, f.Server.Addr())
		foreign[i] = !client && !server && c.How != "guessed"
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
