package nat

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"heddle/internal/nstest"
	"heddle/internal/polltest"
)

// open makes the node's table inside the world.
func (w *world) open(o Options) (table *Table) {
	w.t.Helper()
	w.node.Do(w.t, func() (err error) { table, err = Open(o); return err })
	return table
}

// lease asks for a port at the node.
func (w *world) lease(table *Table, r Rule, ttl time.Duration) (l Lease) {
	w.t.Helper()
	w.node.Do(w.t, func() (err error) { l, err = table.Lease(r, ttl); return err })
	return l
}

func rule6() Rule {
	return Rule{Client: client6, Listen: netip.AddrPortFrom(node6, 0), To: server6}
}

func rule4() Rule {
	return Rule{Client: client4, Listen: netip.AddrPortFrom(node4, 0), To: server4}
}

func TestLeaseLetsOneClientThrough(t *testing.T) {
	for name, r := range map[string]Rule{
		"IPv4": rule4(),
		"IPv6": rule6(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, true)
			table := w.open(Options{})
			if _, _, err := w.dial(r.Client, netip.AddrPortFrom(r.Listen.Addr(), 20000)); !errors.Is(err, unix.ECONNREFUSED) {
				t.Fatalf("without a lease: %v", err)
			}
			l := w.lease(table, r, time.Minute)
			if p := l.Listen.Port(); p < 20000 || p > 20999 {
				t.Fatalf("leased port %d", p)
			}
			c, seen, err := w.dial(r.Client, l.Listen)
			if err != nil || !w.answers(c, patience) {
				t.Fatalf("with a lease: %v", err)
			}
			if l := c.RemoteAddr().String(); seen == r.Client || !strings.HasSuffix(seen.String(), "2::1") && seen.String() != "10.9.2.1" {
				t.Errorf("the server sees %v of a client at %v", seen, l)
			}
			w.node.Do(w.t, func() error {
				all, err := table.Leases()
				if err != nil || len(all) != 1 || all[0].Rule != l.Rule || all[0].Bytes < 300 || time.Until(all[0].Until) > time.Minute {
					t.Errorf("%+v, %v", all, err)
				}
				return table.Release(l.Rule)
			})
			if w.answers(c, inVain) {
				t.Error("a connection lives on after the lease was released")
			}
			if _, _, err := w.dial(r.Client, l.Listen); !errors.Is(err, unix.ECONNREFUSED) {
				t.Errorf("after the lease: %v", err)
			}
		})
	}
}

// Nobody renews or sweeps, as if the process were dead.
func TestLeaseEndsByItself(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	table := w.open(Options{})
	var l Lease
	var c net.Conn
	polltest.Again(t, func(try int) (err error) { // as short as lets a busy machine connect
		l = w.lease(table, rule4(), 1500*time.Millisecond<<try)
		c, _, err = w.dial(client4, l.Listen)
		return err
	})
	end := time.Now().Add(time.Minute)
	holds := func() (n int) {
		w.node.Do(w.t, func() error {
			all, err := table.Leases()
			n = len(all)
			return err
		})
		return n
	}
	for w.answers(c, 400*time.Millisecond) || holds() > 0 {
		if time.Now().After(end) {
			t.Fatal("the connection outlives its lease")
		}
	}
	if w.answers(c, inVain) {
		t.Error("the connection lives on")
	}
	w.node.Do(w.t, func() error {
		_, err := table.Leases()
		if _, err := table.Renew(l.Rule, time.Minute); !errors.Is(err, ErrNoLease) {
			t.Errorf("a lease that ended was renewed: %v", err)
		}
		return err
	})
	// A new process takes over, tells the ends, and can lease the port again.
	table = w.open(Options{})
	l = w.lease(table, l.Rule, time.Minute)
	if _, _, err := w.dial(client4, l.Listen); err != nil {
		t.Errorf("leased again: %v", err)
	}
}

// renewed keeps a lease for longer than it lasts, and wants a connection by it to live on.
func (w *world) renewed(table *Table, ttl time.Duration) (Lease, error) {
	w.t.Helper()
	l := w.lease(table, rule4(), ttl)
	c, _, err := w.dial(client4, l.Listen)
	for end := time.Now().Add(ttl * 3 / 2); err == nil && time.Now().Before(end); {
		w.node.Do(w.t, func() error { _, err = table.Renew(l.Rule, ttl); return nil })
		if err == nil && !w.answers(c, ttl/2) {
			err = errors.New("renewing interrupts")
		}
	}
	return l, err
}

func TestRenewedLeaseHolds(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	table := w.open(Options{})
	var l Lease
	polltest.Again(t, func(try int) (err error) { // as short as lets a busy machine renew in time
		l, err = w.renewed(table, 2*time.Second<<try)
		return err
	})
	other := Rule{l.Client, l.Listen, netip.MustParseAddrPort("10.9.2.3:7000")}
	w.node.Do(w.t, func() error {
		if _, err := table.Renew(other, time.Minute); !errors.Is(err, ErrNoLease) {
			t.Errorf("another destination renews: %v", err)
		}
		if err := table.Release(other); !errors.Is(err, ErrNoLease) {
			t.Errorf("another destination releases: %v", err)
		}
		if _, err := table.Lease(other, time.Minute); err == nil {
			t.Error("another destination takes it over")
		}
		return nil
	})
}

// A restart of the node takes the leases over, and interrupts nothing.
func TestNewProcessTakesOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	l := w.lease(w.open(Options{}), rule4(), time.Minute)
	c, _, err := w.dial(client4, l.Listen)
	if err != nil {
		t.Fatal(err)
	}
	table := w.open(Options{})
	if !w.answers(c, patience) {
		t.Error("a restart interrupts")
	}
	w.node.Do(w.t, func() error {
		all, err := table.Leases()
		if err != nil || len(all) != 1 || all[0].Rule != l.Rule || time.Until(all[0].Until) > time.Minute {
			t.Errorf("%+v, %v", all, err)
		}
		if _, err := table.Renew(l.Rule, time.Minute); err != nil {
			t.Errorf("renew: %v", err)
		}
		return table.Close()
	})
	if w.answers(c, inVain) {
		t.Error("a connection outlives the node's end")
	}
}

// What others have in nftables stays as it is, and goes on working.
func TestOthersRulesStay(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	other := &nftables.Table{Name: "other", Family: nftables.TableFamilyIPv4}
	w.node.Do(w.t, func() error { // another's DNAT, from a port in our range
		conn, err := nftables.New()
		if err != nil {
			return err
		}
		conn.AddTable(other)
		add := func(c *nftables.Chain, exprs ...expr.Any) {
			conn.AddRule(&nftables.Rule{Table: other, Chain: conn.AddChain(c), Exprs: exprs})
		}
		add(&nftables.Chain{Name: "pre", Table: other, Type: nftables.ChainTypeNAT, Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityNATDest},
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{20500 >> 8, 20500 & 0xff}},
			&expr.Immediate{Register: 1, Data: server4.Addr().AsSlice()},
			&expr.Immediate{Register: 2, Data: []byte{7000 >> 8, 7000 & 0xff}},
			&expr.NAT{Type: expr.NATTypeDestNAT, Family: unix.NFPROTO_IPV4, RegAddrMin: 1, RegProtoMin: 2})
		add(&nftables.Chain{Name: "post", Table: other, Type: nftables.ChainTypeNAT, Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource},
			&expr.Masq{})
		return conn.Flush()
	})
	rules := func() (n int) {
		w.node.Do(w.t, func() error {
			conn, err := nftables.New()
			if err != nil {
				return err
			}
			for _, chain := range []string{"pre", "post"} {
				all, err := conn.GetRules(other, &nftables.Chain{Name: chain, Table: other})
				if err != nil {
					return err
				}
				n += len(all)
			}
			return nil
		})
		return n
	}
	before := rules()
	table := w.open(Options{Table: "mine"})
	r := rule4()
	r.Listen = netip.AddrPortFrom(node4, 20501)
	w.lease(table, r, time.Minute)
	theirs, _, err := w.dial(client4, netip.AddrPortFrom(node4, 20500))
	if err != nil || !w.answers(theirs, patience) {
		t.Fatalf("another's DNAT: %v", err)
	}
	w.node.Do(w.t, table.Sweep)
	w.node.Do(w.t, table.Close)
	if !w.answers(theirs, patience) {
		t.Error("another's connection ended with our table")
	}
	if after := rules(); before != 2 || after != before {
		t.Errorf("%d rules of others before, %d after", before, after)
	}
}

func TestBadLeases(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	table := w.open(Options{First: 20000, Last: 20001})
	w.node.Do(w.t, func() error {
		for name, change := range map[string]func(*Rule, *time.Duration){
			"no client":    func(r *Rule, _ *time.Duration) { r.Client = netip.Addr{} },
			"no address":   func(r *Rule, _ *time.Duration) { r.Listen = netip.AddrPort{} },
			"no target":    func(r *Rule, _ *time.Duration) { r.To = netip.AddrPort{} },
			"no port":      func(r *Rule, _ *time.Duration) { r.To = netip.AddrPortFrom(server4.Addr(), 0) },
			"two families": func(r *Rule, _ *time.Duration) { r.To = server6 },
			"loopback":     func(r *Rule, _ *time.Duration) { r.To = netip.MustParseAddrPort("127.0.0.1:22") },
			"multicast":    func(r *Rule, _ *time.Duration) { r.To = netip.MustParseAddrPort("224.0.0.1:22") },
			"too short":    func(_ *Rule, ttl *time.Duration) { *ttl = MinTTL - 1 },
			"too long":     func(_ *Rule, ttl *time.Duration) { *ttl = MaxTTL + 1 },
		} {
			r, ttl := rule4(), time.Minute
			change(&r, &ttl)
			if l, err := table.Lease(r, ttl); err == nil {
				t.Errorf("%s: %+v", name, l)
			}
		}
		for range 2 {
			if _, err := table.Lease(rule4(), time.Minute); err != nil {
				t.Error(err)
			}
		}
		if l, err := table.Lease(rule4(), time.Minute); err == nil {
			t.Errorf("a third lease of two ports: %+v", l)
		}
		return nil
	})
}

// A client's table sends its connections by the address that they leave from, and lets none go straight afterwards.
func TestLocalTableTranslatesBySource(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	w.server.Do(w.t, func() error { return route("10.9.1.0/24", "10.9.2.1") })
	w.client.Do(w.t, func() error { return errors.Join(route("10.9.2.0/24", "10.9.1.1"), nstest.Address("n", "10.9.1.3/24")) })
	l := w.lease(w.open(Options{}), rule4(), time.Minute)
	var table *Table
	local := Rule{Client: client4, Listen: server4, To: l.Listen}
	w.client.Do(w.t, func() (err error) {
		if table, err = OpenLocal(); err != nil {
			return err
		}
		_, err = table.Lease(local, time.Minute)
		return err
	})
	c, seen, err := w.dial(client4, server4)
	if err != nil || seen.String() != "10.9.2.1" {
		t.Fatalf("from the leased address the server sees %v, %v", seen, err)
	}
	if _, seen, err := w.dial(netip.MustParseAddr("10.9.1.3"), server4); err != nil || seen.String() != "10.9.1.3" {
		t.Fatalf("from another address the server sees %v, %v", seen, err)
	}
	w.client.Do(w.t, func() error { _, err := table.Renew(local, time.Minute); return err })
	if !w.answers(c, patience) {
		t.Error("renewing interrupts")
	}
	// Another server at the same port is another matter.
	other := Rule{Client: client4, Listen: netip.AddrPortFrom(netip.MustParseAddr("10.9.2.77"), server4.Port()), To: l.Listen}
	w.client.Do(w.t, func() error {
		_, leased := table.Lease(other, time.Minute)
		_, renewed := table.Renew(other, time.Minute)
		return errors.Join(leased, renewed)
	})
	if _, seen, err := w.dial(client4, other.Listen); err != nil || seen.String() != "10.9.2.1" {
		t.Errorf("by the second server's rule: the server sees %v, %v", seen, err)
	}
	w.client.Do(w.t, func() error { return table.Release(other) })
	w.client.Do(w.t, func() error { return table.Release(local) })
	if !w.answers(c, patience) {
		t.Error("a connection that goes by the node breaks with the rule for new ones")
	}
	if _, seen, err := w.dialWithin(inVain, client4, server4); err == nil {
		t.Errorf("after the lease a connection goes straight: the server sees %v", seen)
	}
	// Another process does not mind what this one left.
	w.client.Do(w.t, func() error {
		other := &Table{layout: localLayout}
		other.name += "other"
		if err := other.takeOver(); err != nil {
			return err
		}
		_, err := other.Lease(local, time.Minute)
		return err
	})
	if _, seen, err := w.dial(client4, server4); err != nil || seen.String() != "10.9.2.1" {
		t.Errorf("by another process's rule: the server sees %v, %v", seen, err)
	}
}

// What has ended makes room, also where it is much at once.
func TestSweep(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	table := w.open(Options{})
	w.node.Do(w.t, func() error {
		c := content{}
		for i := range 2000 {
			r := Rule{Client: netip.AddrFrom4([4]byte{10, 2, byte(i >> 8), byte(i)}), Listen: netip.AddrPortFrom(node4, 20000), To: server4}
			c.leases = append(c.leases, Lease{Rule: r, Until: time.Now().Add(time.Minute)})
			c.known = append(c.known, key{netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), 20000}, key{client6, uint16(20000 + i)})
		}
		if err := table.write(c, [2]bool{}); err != nil {
			return err
		}
		l, err := table.Lease(rule4(), time.Minute)
		if err != nil {
			return err
		}
		if err := table.Sweep(); err != nil {
			return err
		}
		left, err := table.read()
		if len(left.known) != 2001 || !left.knows(keyOf(l.Rule)) || len(left.leases) != 2001 || left.leases[0].To != c.leases[1999].To {
			t.Errorf("%d are known, %d leased", len(left.known), len(left.leases))
		}
		return err
	})
}

// A client's process that was killed leaves a table that goes empty, and that the next one removes.
func TestEmptyTablesOfDeadProcessesGo(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	tables := func() (names []string) {
		conn, err := nftables.New()
		if err != nil {
			t.Error(err)
			return nil
		}
		all, err := conn.ListTables()
		if err != nil {
			t.Error(err)
		}
		for _, table := range all {
			names = append(names, table.Name)
		}
		return names
	}
	const dead = "heddle_local_4194305" // above the kernel's greatest number of a process
	w.client.Do(w.t, func() error {
		full := localLayout
		full.name = dead
		lease := Lease{Rule: Rule{Client: client4, Listen: server4, To: netip.AddrPortFrom(node4, 20000)}, Until: time.Now().Add(time.Minute)}
		if err := full.write(content{leases: []Lease{lease}}, [2]bool{}); err != nil {
			return err
		}
		if _, err := OpenLocal(); err != nil {
			return err
		}
		if names := tables(); !slices.Contains(names, dead) {
			t.Errorf("a table that still stops something is gone: %v", names)
		}
		if err := full.write(content{}, [2]bool{}); err != nil {
			return err
		}
		table, err := OpenLocal()
		if err != nil {
			return err
		}
		if names := tables(); slices.Contains(names, dead) || !slices.Contains(names, table.name) {
			t.Errorf("tables: %v", names)
		}
		return table.Close()
	})
}

func FuzzElement(f *testing.F) {
	f.Add([]byte("0123456789ab"))
	f.Add([]byte("01234567"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if client, listen, err := parsePast(raw); err == nil && string(past(Rule{Client: client, Listen: listen})[:len(raw)-2]) != string(raw[:len(raw)-2]) {
			t.Errorf("%x was read as %v, %v", raw, client, listen)
		}
		if at, err := parseJoined(raw); err == nil && string(join(at)[:len(raw)-2]) != string(raw[:len(raw)-2]) {
			t.Errorf("%x was read as %v", raw, at)
		}
	})
}
