package backend

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"heddle/internal/nft"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
)

// Guard is an nftables table that drops datagrams to the server unless they leave by one of the exits. It is made in one
// transaction, stays after a crash until it is undone, and counts what passes each exit.
type Guard struct {
	Table   string           `json:"table"`
	Server  netip.AddrPort   `json:"server"`
	Exits   []Exit           `json:"-"`                // none after a crash, so that nothing leaves
	Others  []netip.AddrPort `json:"others,omitempty"` // other addresses that the name has or had; nothing leaves to them
	Answers bool             `json:"-"`                // count answers too
	Largest int              `json:"-"`                // IP packet of QUIC that may arrive, in bytes, where answers are counted; 0: any
	Lease   time.Duration    `json:"-"`                // the kernel closes the exits this long after [Guard.Permit]; 0: never

	permitted    bool
	exits, drops int // rules of the table that accept and that drop, as last applied
	narrowed     int // rules that drop arrivals, as last applied
}

// Exit is a device that datagrams to the server may leave by. If Source is valid, they need this source address too.
type Exit struct {
	Index  int
	Source netip.Addr
	MTU    int // the largest packet that the device carries
}

// Passed holds the counters of the guard. A run of segments (UDP_SEGMENT) counts as one packet.
type Passed struct {
	Up, Down []Tally // one an exit; Down only where answers are counted
	Refused  Tally   // dropped by the guard
	TooLarge Tally   // arrivals dropped by the guard
}

// Tally counts packets and their UDP payload in bytes.
type Tally struct{ Packets, Bytes uint64 }

// Plus returns the sum of two tallies.
func (t Tally) Plus(more Tally) Tally { return Tally{t.Packets + more.Packets, t.Bytes + more.Bytes} }

func (g *Guard) String() string {
	return fmt.Sprintf("nft add table inet %s (datagrams to %s leave as the session says, or not at all)", g.Table, g.Server)
}

// Guards returns true: the guard keeps packets in.
func (g *Guard) Guards() bool { return true }

// Forbid adds addresses to Others, and keeps the newest 64. Apply must follow.
func (g *Guard) Forbid(others ...netip.AddrPort) {
	for _, a := range others {
		if a.IsValid() && a != g.Server && !slices.Contains(g.Others, a) {
			g.Others = append(g.Others, a)
		}
	}
	g.Others = g.Others[max(0, len(g.Others)-2*maxOthers):]
}

const (
	upChain   = "postrouting"
	downChain = "prerouting"
)

// Apply makes or replaces the table in one step, so that nothing passes in between. Its counters begin at 0.
func (g *Guard) Apply() error {
	if err := nft.Change(g.fill); err != nil {
		return err
	}
	g.exits, g.drops, g.narrowed = len(g.Exits), 1+len(g.Others), len(g.wide())
	return nil
}

func (g *Guard) fill(conn *nftables.Conn) error {
	table := nft.Inet(g.Table)
	nft.Replace(conn, table)
	up := conn.AddChain(&nftables.Chain{Name: upChain, Table: table, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityFilter})
	var down *nftables.Chain
	if g.Answers {
		down = conn.AddChain(&nftables.Chain{Name: downChain, Table: table, Type: nftables.ChainTypeFilter,
			Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityRaw})
	}
	var leased []expr.Any
	if g.Lease > 0 {
		set := g.lease(table)
		if err := conn.AddSet(set, g.permission()); err != nil {
			return err
		}
		leased = nft.Lookup(set)
	}
	add := func(chain *nftables.Chain, parts ...[]expr.Any) {
		conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: nft.Join(parts...)})
	}
	for _, e := range g.wide() {
		ip := int(g.headers()) - 8
		add(down, nft.InIndex(e.Index), nft.UDP(g.Server, nft.Source), nft.UDPLength(uint16(g.Largest-ip+1), uint16(min(e.MTU-ip, 1<<16-1))),
			nft.TransportBit(8, quicBit), nft.Drop)
	}
	for _, e := range g.Exits {
		var source []expr.Any
		if e.Source.IsValid() {
			source = nft.Address(e.Source, nft.Source)
		}
		// The lease is a set of ports: nft.UDP leaves the port in the register.
		add(up, nft.OutIndex(e.Index), source, nft.UDP(g.Server, nft.Destination), leased, nft.Count, nft.Accept)
		if g.Answers {
			add(down, nft.InIndex(e.Index), nft.UDP(g.Server, nft.Source), nft.Count, nft.Pass)
		}
	}
	for _, to := range append([]netip.AddrPort{g.Server}, g.Others...) {
		add(up, nft.UDP(to, nft.Destination), nft.Drop)
	}
	return nil
}

// quicBit is set in the first byte of QUIC packets (RFC 9000, section 17), and not in WireGuard's.
const quicBit = 0x40

// wide returns the exits whose devices bring larger packets than may arrive. Both ends of QUIC search for the largest size (RFC
// 8899), so what one path alone carries must not pass. What is larger than the device carries is a run of datagrams that the
// kernel joined (UDP_GRO), whose own size the rules cannot see.
func (g *Guard) wide() (all []Exit) {
	for _, e := range g.Exits {
		if g.Answers && g.Largest > 0 && e.MTU > g.Largest {
			all = append(all, e)
		}
	}
	return all
}

// lease returns the set that holds the server's port while the exits are open.
func (g *Guard) lease(table *nftables.Table) *nftables.Set {
	// The library's own numbers for sets are not safe for concurrent use. One is enough for a transaction.
	return &nftables.Set{Table: table, ID: 1, Name: "permission", KeyType: nftables.TypeInetService, HasTimeout: true}
}

func (g *Guard) permission() []nftables.SetElement {
	if !g.permitted {
		return nil
	}
	return []nftables.SetElement{{Key: binary.BigEndian.AppendUint16(nil, g.Server.Port()), Timeout: g.Lease}}
}

// Permit opens the exits and starts the lease anew.
func (g *Guard) Permit() error { return g.setPermitted(true) }

// Withdraw closes the exits until the next Permit.
func (g *Guard) Withdraw() error {
	if !g.permitted {
		return nil
	}
	return g.setPermitted(false)
}

// setPermitted replaces the set's element in one transaction: kernels before 6.13 cannot prolong one.
func (g *Guard) setPermitted(permitted bool) error {
	g.permitted = permitted
	return nft.Change(func(conn *nftables.Conn) error {
		set := g.lease(nft.Inet(g.Table))
		conn.FlushSet(set)
		return conn.SetAddElements(set, g.permission())
	})
}

func (g *Guard) Undo() error { return nft.Remove(nft.Inet(g.Table)) }

// Read returns what was counted since the last successful Apply. It fails if somebody changed or removed the table.
func (g *Guard) Read() (Passed, error) {
	conn, err := nft.Connect()
	if err != nil {
		return Passed{}, err
	}
	table := nft.Inet(g.Table)
	count := func(chain string) (all []Tally, err error) {
		rules, err := conn.GetRules(table, &nftables.Chain{Name: chain, Table: table})
		for _, r := range rules {
			for _, e := range r.Exprs {
				if c, ok := e.(*expr.Counter); ok {
					all = append(all, Tally{c.Packets, c.Bytes - min(c.Bytes, c.Packets*g.headers())})
				}
			}
		}
		return all, err
	}
	up, err := count(upChain)
	if err != nil {
		return Passed{}, err
	}
	var down []Tally
	if g.Answers {
		if down, err = count(downChain); err != nil {
			return Passed{}, err
		}
	}
	n := g.exits
	if len(up) != n+g.drops || g.Answers && len(down) != g.narrowed+n {
		return Passed{}, fmt.Errorf("table %s is not as it was made", g.Table)
	}
	p := Passed{Up: up[:n], Down: down[g.narrowed:]}
	for _, large := range down[:g.narrowed] {
		p.TooLarge = p.TooLarge.Plus(large)
	}
	for _, drop := range up[n:] {
		p.Refused = p.Refused.Plus(drop)
	}
	return p, nil
}

// headers returns the length of an IP header without options and a UDP header, in bytes.
func (g *Guard) headers() uint64 {
	if g.Server.Addr().Is4() {
		return 28
	}
	return 48
}
