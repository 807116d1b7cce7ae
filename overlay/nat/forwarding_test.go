package nat

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/net/ipv6"

	"heddle/internal/errhint"
	"heddle/internal/nstest"
)

// settings are those of both families, in the node.
func (w *world) settings() (text string) {
	w.t.Helper()
	w.node.Do(w.t, func() error {
		for _, f := range families {
			value, err := os.ReadFile(f.forwarding)
			if err != nil {
				return err
			}
			text += string(value[0])
		}
		return nil
	})
	return text
}

func TestForwardingIsNotSetUnasked(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false)
	w.node.Do(t, func() error {
		if _, err := Open(Options{}); !strings.Contains(errhint.Of(err), "sysctl -w net.ipv4.ip_forward=1") {
			t.Errorf("no forwarding: %v", err)
		}
		if conn, err := nftables.New(); err != nil {
			return err
		} else if tables, err := conn.ListTables(); err != nil || len(tables) != 0 {
			t.Errorf("refused, but made %d tables, %v", len(tables), err)
		}
		if err := nstest.Set("ipv4/ip_forward", "1"); err != nil {
			return err
		}
		table, err := Open(Options{})
		if err != nil {
			return err
		}
		if _, err := table.Lease(rule6(), time.Minute); !strings.Contains(errhint.Of(err), "sysctl -w net.ipv6.conf.all.forwarding=1") {
			t.Errorf("no forwarding of IPv6: %v", err)
		}
		return table.Close()
	})
	if now := w.settings(); now != "10" {
		t.Errorf("forwarding is %s", now)
	}
}

// What is set is for leases alone, of a family that has some, and goes back at the end, also that of another process.
func TestForwardingIsSetForLeasesAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false)
	table := w.open(Options{SetForwarding: true})
	w.lease(table, rule4(), time.Minute)
	if now := w.settings(); now != "10" {
		t.Fatalf("with a lease of IPv4 forwarding is %s", now)
	}
	before := w.lease(table, rule6(), time.Minute)
	for _, r := range []Rule{rule4(), rule6()} {
		l := w.lease(table, r, time.Minute)
		if _, _, err := w.dial(r.Client, l.Listen); err != nil {
			t.Fatalf("%v with forwarding set: %v", r.Client, err)
		}
	}
	// Others are not forwarded: the server has a way back now, but the client's packet does not get there.
	w.server.Do(t, func() error { return errors.Join(route("10.9.1.0/24", "10.9.2.1"), route("fd09:1::/64", "fd09:2::1")) })
	w.client.Do(t, func() error { return errors.Join(route("10.9.2.0/24", "10.9.1.1"), route("fd09:2::/64", "fd09:1::1")) })
	closed := func(when string) {
		t.Helper()
		for _, r := range []Rule{rule4(), rule6()} {
			if _, _, err := w.dialWithin(inVain, r.Client, r.To); err == nil {
				t.Errorf("%s the node is a router for everybody, from %v", when, r.Client)
			}
		}
	}
	closed("with forwarding set")
	table = w.open(Options{}) // as after a crash
	closed("after a restart")
	if _, _, err := w.dial(client6, before.Listen); err != nil {
		t.Errorf("after a restart the lease does not hold: %v", err)
	}
	w.node.Do(t, table.Close)
	if now := w.settings(); now != "00" {
		t.Errorf("at the end forwarding is %s", now)
	}
}

// Behind a router by which less fits into a packet, the server learns of it.
func TestTooBigIsTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false)
	router := nstest.New(t)
	far := &world{t: t, node: w.node, server: w.server, client: nstest.New(t)}
	nstest.Link(t, nstest.End{In: w.node, Device: "r", Addrs: []string{"10.9.3.1/24", "fd09:3::1/64"}},
		nstest.End{In: router, Device: "n", Addrs: []string{"10.9.3.2/24", "fd09:3::2/64"}})
	nstest.Link(t, nstest.End{In: router, Device: "c", Addrs: []string{"10.9.4.1/24", "fd09:4::1/64"}},
		nstest.End{In: far.client, Device: "n", Addrs: []string{"10.9.4.2/24", "fd09:4::2/64"}})
	router.Do(t, func() error {
		return errors.Join(nstest.Set("ipv4/ip_forward", "1"), nstest.Set("ipv6/conf/all/forwarding", "1"),
			narrow("10.9.4.2/32", "c"), narrow("fd09:4::2/128", "c"))
	})
	w.node.Do(t, func() error { return errors.Join(route("10.9.4.0/24", "10.9.3.2"), route("fd09:4::/64", "fd09:3::2")) })
	far.client.Do(t, func() error { return errors.Join(route("10.9.3.0/24", "10.9.4.1"), route("fd09:3::/64", "fd09:4::1")) })
	table := w.open(Options{SetForwarding: true})
	for _, r := range []Rule{
		{Client: netip.MustParseAddr("10.9.4.2"), Listen: netip.MustParseAddrPort("10.9.3.1:0"), To: server4},
		{Client: netip.MustParseAddr("fd09:4::2"), Listen: netip.MustParseAddrPort("[fd09:3::1]:0"), To: server6},
	} {
		c, _, err := far.dial(r.Client, w.lease(table, r, time.Minute).Listen)
		if err != nil {
			t.Fatal(err)
		}
		const size = 200_000
		go func() { _, _ = c.Write(make([]byte, size)) }()
		if n, err := io.CopyN(io.Discard, c, size); err != nil {
			t.Errorf("from %v: %d bytes came back, %v", r.Client, n, err)
		}
	}
	w.node.Do(t, table.Close)
}

// narrow leads to an address by a device, with packets of 1300 bytes at most.
func narrow(to, device string) error {
	return nstest.Route(to, device, netlink.Route{MTU: 1300, Scope: netlink.SCOPE_LINK})
}

// A machine whose default route came by a router's advertisement would lose it.
func TestForwardingKeepsTheWayOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false)
	w.advertise()
	table := w.open(Options{SetForwarding: true})
	w.node.Do(t, func() error {
		if _, err := table.Lease(rule6(), time.Minute); !strings.Contains(errhint.Of(err), "net/ipv6/conf/s/accept_ra=2") {
			t.Errorf("a lease that costs the default route: %v", err)
		}
		return nstest.Set("ipv6/conf/s/accept_ra", "2")
	})
	if now := w.settings(); now != "10" || !w.hasDefault() {
		t.Fatalf("refused, and forwarding is %s", now)
	}
	w.lease(table, rule6(), time.Minute)
	if !w.hasDefault() {
		t.Error("the default route is gone")
	}
	w.node.Do(t, table.Close)
}

// hasDefault reports that the node has a default route of IPv6.
func (w *world) hasDefault() (has bool) {
	w.t.Helper()
	w.node.Do(w.t, func() error {
		routes, err := netlink.RouteList(nil, netlink.FAMILY_V6)
		for _, r := range routes {
			ones := 0
			if r.Dst != nil {
				ones, _ = r.Dst.Mask.Size()
			}
			has = has || ones == 0 && r.Gw != nil
		}
		return err
	})
	return has
}

// advertise has the server advertise itself as a router (RFC 4861, section 4.2), until the node has a route to it.
func (w *world) advertise() {
	w.t.Helper()
	var c net.PacketConn
	var zone string
	w.server.Do(w.t, func() error {
		link, err := netlink.LinkByName("n")
		if err == nil {
			zone = strconv.Itoa(link.Attrs().Index)
			c, err = net.ListenPacket("ip6:ipv6-icmp", "::")
		}
		return err
	})
	defer c.Close()
	const advertisement, lifetime = 134, 600 // seconds
	p, message := ipv6.NewPacketConn(c), make([]byte, 16)
	message[0], message[6], message[7] = advertisement, lifetime>>8, lifetime&0xff
	if err := p.SetMulticastHopLimit(255); err != nil {
		w.t.Fatal(err)
	}
	var err error
	for end := time.Now().Add(time.Minute); !w.hasDefault(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			w.t.Fatal(fmt.Errorf("no default route: %w", err))
		}
		_, err = p.WriteTo(message, nil, &net.IPAddr{IP: net.ParseIP("ff02::1"), Zone: zone})
	}
}
