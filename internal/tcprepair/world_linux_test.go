package tcprepair

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"heddle/internal/nstest"
	"heddle/internal/polltest"
)

// world has a client, and two machines behind a router. The router leads the packets to the public address to one of them, or to none:
//
//	client net ---- client router first  ---- up first
//	                       router second ---- up second
type world struct {
	t             testing.TB
	router        nstest.Namespace
	client        nstest.Namespace
	first, second nstest.Namespace
	public        netip.AddrPort
	vias          map[string]netip.Addr // of the machines

	taps   []*nstest.Tap
	resets atomic.Int64 // and ICMP errors, that any machine sent
	// sent counts TCP packets that left a machine, and came those that arrived there.
	sent, came map[string]*atomic.Int64
}

const (
	first  = "first"
	second = "second"
)

// table is where the second machine finds a foreign address.
const table = 100

func addresses(v6 bool) map[string]string {
	if v6 {
		return map[string]string{"client": "2001:db8:c::2/64", "near": "2001:db8:c::1/64", first: "fd09:1::2/64", "to first": "fd09:1::1/64",
			second: "fd09:2::2/64", "to second": "fd09:2::1/64", "public": "2001:db8:77::10/128"}
	}
	return map[string]string{"client": "198.51.100.2/24", "near": "198.51.100.1/24", first: "10.9.1.2/24", "to first": "10.9.1.1/24",
		second: "10.9.2.2/24", "to second": "10.9.2.1/24", "public": "203.0.113.10/32"}
}

// newWorld makes a world. The public address is one of the second machine too, unless it is foreign there.
func newWorld(t testing.TB, v6, foreign bool) *world {
	t.Helper()
	a := addresses(v6)
	at := func(name string) netip.Addr { return netip.MustParsePrefix(a[name]).Addr() }
	w := &world{t: t, router: nstest.New(t), client: nstest.New(t), first: nstest.New(t), second: nstest.New(t), public: netip.AddrPortFrom(at("public"), 443),
		vias: map[string]netip.Addr{first: at(first), second: at(second)}, sent: map[string]*atomic.Int64{first: {}, second: {}}, came: map[string]*atomic.Int64{first: {}, second: {}}}
	nstest.Link(t, nstest.End{In: w.client, Device: "net", Addrs: []string{a["client"]}}, nstest.End{In: w.router, Device: "client", Addrs: []string{a["near"]}})
	nstest.Link(t, nstest.End{In: w.first, Device: "up", Addrs: []string{a[first]}}, nstest.End{In: w.router, Device: first, Addrs: []string{a["to first"]}})
	nstest.Link(t, nstest.End{In: w.second, Device: "up", Addrs: []string{a[second]}}, nstest.End{In: w.router, Device: second, Addrs: []string{a["to second"]}})
	w.router.Do(t, func() error {
		return errors.Join(nstest.Set("ipv4/ip_forward", "1"), nstest.Set("ipv6/conf/all/forwarding", "1"))
	})
	everywhere := map[bool]string{false: "0.0.0.0/0", true: "::/0"}[v6]
	by := func(gateway string) func() error {
		return func() error { return nstest.Route(everywhere, "", netlink.Route{Gw: at(gateway).AsSlice()}) }
	}
	w.client.Do(t, by("near"))
	w.first.Do(t, by("to first"))
	w.second.Do(t, by("to second"))
	w.first.Do(t, func() error { return nstest.Address("lo", a["public"]) })
	w.second.Do(t, func() error {
		if !foreign {
			return nstest.Address("lo", a["public"])
		}
		rule := netlink.NewRule()
		rule.Family, rule.IifName, rule.Table, rule.Priority = family(w.public.Addr()), "up", table, table
		return errors.Join(netlink.RuleAdd(rule), nstest.Route(a["public"], "lo", netlink.Route{Table: table, Type: unix.RTN_LOCAL, Scope: netlink.SCOPE_HOST}))
	})
	w.lead(first)
	w.watch(v6)
	return w
}

func family(a netip.Addr) int {
	if a.Is6() {
		return unix.AF_INET6
	}
	return unix.AF_INET
}

// lead leads packets to the public address to a machine, or loses them if to is empty.
func (w *world) lead(to string) {
	w.t.Helper()
	bits := w.public.Addr().BitLen()
	route := &netlink.Route{Family: family(w.public.Addr()), Dst: &net.IPNet{IP: w.public.Addr().AsSlice(), Mask: net.CIDRMask(bits, bits)}, Type: unix.RTN_BLACKHOLE}
	if to != "" {
		route.Type, route.Gw = unix.RTN_UNICAST, w.vias[to].AsSlice()
	}
	w.router.Do(w.t, func() error { return netlink.RouteReplace(route) })
}

// watch counts what nobody may send.
func (w *world) watch(v6 bool) {
	w.taps = append(w.taps, w.client.Tap(w.t, func(p nstest.Passed) { w.count(p, v6, "") }, "net"))
	w.taps = append(w.taps, w.first.Tap(w.t, func(p nstest.Passed) { w.count(p, v6, first) }, "up"))
	w.taps = append(w.taps, w.second.Tap(w.t, func(p nstest.Passed) { w.count(p, v6, second) }, "up"))
}

func (w *world) count(p nstest.Passed, v6 bool, machine string) {
	b, header, protocol := p.Bytes, 40, 6
	if v6 && len(b) > header && b[0]>>4 == 6 {
		protocol = int(b[6])
	} else if !v6 && len(b) >= 20 && b[0]>>4 == 4 {
		header, protocol = 4*int(b[0]&15), int(b[9])
	} else {
		return // ARP
	}
	switch {
	case protocol == unix.IPPROTO_TCP && len(b) >= header+20:
		if b[header+13]&4 != 0 {
			w.resets.Add(1)
		}
		if counts := map[bool]map[string]*atomic.Int64{false: w.came, true: w.sent}[p.Outgoing]; counts[machine] != nil {
			counts[machine].Add(1)
		}
	case protocol == unix.IPPROTO_ICMP, protocol == unix.IPPROTO_ICMPV6 && b[header] < 128: // an error (RFC 4443)
		w.resets.Add(1)
	}
}

// left returns how many TCP packets left a machine.
func (w *world) left(machine string) int64 {
	w.t.Helper()
	for _, tap := range w.taps {
		tap.Drain()
	}
	return w.sent[machine].Load()
}

// quiet fails the test if anybody sent a reset or an ICMP error.
func (w *world) quiet() {
	w.t.Helper()
	w.left(first)
	if n := w.resets.Load(); n > 0 {
		w.t.Errorf("%d resets and ICMP errors", n)
	}
}

// connect connects the client to the first machine. The connection ends with the test.
func (w *world) connect() (client, server *net.TCPConn) {
	w.t.Helper()
	l := w.listen()
	w.client.Do(w.t, func() (err error) {
		client, err = net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(w.public))
		return err
	})
	server, err := l.AcceptTCP()
	if err = errors.Join(err, l.Close()); err != nil {
		w.t.Fatal(err)
	}
	for _, c := range []*net.TCPConn{client, server} {
		w.t.Cleanup(func() { c.Close() })
		patient(w.t, c)
	}
	return client, server
}

// listen listens at the first machine, for both families.
func (w *world) listen() (l *net.TCPListener) {
	w.t.Helper()
	w.first.Do(w.t, func() (err error) {
		l, err = net.ListenTCP("tcp", &net.TCPAddr{Port: int(w.public.Port())})
		return err
	})
	return l
}

func patient(t testing.TB, c net.Conn) {
	if err := c.SetDeadline(time.Now().Add(polltest.Patience)); err != nil {
		t.Fatal(err)
	}
}

// restore makes a socket of a connection on a machine, from the encoded state.
func (w *world) restore(on nstest.Namespace, s State, o Options) (*Held, error) {
	b, err := s.MarshalBinary()
	if err != nil {
		return nil, err
	}
	var moved State
	if err := moved.UnmarshalBinary(b); err != nil {
		return nil, err
	}
	var h *Held
	err = on.Run(func() (err error) {
		h, err = Restore(moved, o)
		return err
	})
	return h, err
}

// move moves a connection to a machine.
func (w *world) move(c *net.TCPConn, to string, o Options) (*net.TCPConn, State) {
	w.t.Helper()
	on := map[string]nstest.Namespace{first: w.first, second: w.second}[to]
	held, err := Hold(c)
	if err != nil {
		w.t.Fatal(err)
	}
	s, err := held.State()
	if err != nil {
		w.t.Fatal(err)
	}
	before := w.left(to)
	twin, err := w.restore(on, s, o)
	if err != nil {
		w.t.Fatal(err)
	}
	if n := w.left(to) - before; n > 0 {
		w.t.Errorf("the new side sent %d packets before it was told to", n)
	}
	w.lead(to)
	arrived(w.t) // what the router led to the old side before
	if err := held.Close(); err != nil {
		w.t.Fatal(err)
	}
	moved, err := twin.Resume()
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { moved.Close() })
	patient(w.t, moved)
	return moved, s
}

// arrived waits until each processor has handled the packets that it had got for any device.
func arrived(t testing.TB) {
	t.Helper()
	const backlog = 11 // the column of their number (net/core/net-procfs.c)
	handled := map[int]bool{}
	polltest.Until(t, func() error {
		text, err := os.ReadFile("/proc/net/softnet_stat")
		if err != nil {
			return err
		}
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		for i, line := range lines {
			columns := strings.Fields(line)
			if len(columns) <= backlog {
				return fmt.Errorf("no number of packets in %q", line)
			}
			if columns[backlog] == "00000000" {
				handled[i] = true
			}
		}
		if len(handled) < len(lines) {
			return fmt.Errorf("%d of %d processors have packets", len(lines)-len(handled), len(lines))
		}
		return nil
	})
}

// unread returns how many bytes a socket has that the program did not read.
func unread(c *net.TCPConn) (n int, err error) {
	err = control(c, func(fd int) (err error) {
		n, err = unix.IoctlGetInt(fd, unix.SIOCINQ)
		return err
	})
	return n, err
}

// stream returns bytes of which no two stretches are the same.
func stream(seed uint32, size int) []byte {
	b := make([]byte, 0, size)
	for n := seed << 24; len(b) < size; n++ {
		b = binary.BigEndian.AppendUint32(b, n)
	}
	return b
}

func differs(what string, got, want []byte) error {
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			return fmt.Errorf("%s: byte %d of %d is wrong", what, i, len(want))
		}
	}
	if len(got) != len(want) {
		return fmt.Errorf("%s: %d bytes, want %d", what, len(got), len(want))
	}
	return nil
}
