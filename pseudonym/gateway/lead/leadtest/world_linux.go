// Package leadtest tests switches of moved connections with real connections, and looks at what the client's network sees. Do not import it
// outside tests.
package leadtest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"

	"heddle/internal/netns"
	"heddle/internal/nstest"
	"heddle/internal/polltest"
	"heddle/internal/tcprepair"
	"heddle/pseudonym/gateway/lead"
)

// Switch is one of moved connections.
type Switch interface {
	Lead(client, gateway, tenant netip.AddrPort) error
	Each(func(lead.Connection) error) error
	Close() error
}

// All returns what a switch leads.
func All(t *testing.T, s Switch) (all []lead.Connection) {
	t.Helper()
	if err := s.Each(func(c lead.Connection) error {
		all = append(all, c)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

// Kind is a kind of switch. Its functions run in the network namespace of the gateway.
type Kind struct {
	New    func() (Switch, error)
	Remove func(*World) error // removes what a switch made, as an operator would

	// Prepare makes what the switch needs on the gateway's machine, whose devices "net" and "site" have no addresses yet. It returns those to
	// which they belong. A kind without it takes the two.
	Prepare func(*World) (net, site string)

	// Asks says that the switch notes nothing of what happened, and asks the tenant.
	Asks bool

	// Has reports whether the switch has an entry, "to" for the client's packets, "direct" for a tenant that answers them directly, or "back" for the tenant's, or noted what happened: the client
	// "finished", the tenant "answered", or the connection "ended".
	Has func(w *World, what string) (bool, error)
}

// World has a client, its provider, a gateway, and a tenant behind a router.
type World struct {
	V6                      bool
	Client, Gateway, Tenant nstest.Namespace
	Router                  nstest.Namespace // between the gateway and the tenant, which it calls site; the gateway's side is net
	At                      netip.AddrPort   // the client, always from one port
	Public, Inside          netip.AddrPort   // the gateway, and the tenant
	To                      Switch

	t        *testing.T
	kind     Kind
	provider nstest.Namespace
	tap      *nstest.Tap
	resets   atomic.Int64 // that client or gateway sent to each other
	errors   atomic.Int64 // of ICMP
	strange  atomic.Int64 // packets to the client that are not like the gateway's own
	named    atomic.Int64 // packets with the tenant's address
	log      segments
	gateways *net.TCPListener
	past     *past // of a world in which the tenant answers past the gateway
}

// NewWorld makes a world of IPv4 or IPv6 with a switch.
func NewWorld(t *testing.T, k Kind, v6 bool) *World {
	t.Helper()
	w := &World{V6: v6, Client: nstest.New(t), Gateway: nstest.New(t), Tenant: nstest.New(t), t: t, kind: k, provider: nstest.New(t), Router: nstest.New(t)}
	w.log.asks = k.Asks
	// The networks of client and tenant, the host that each has in them, the router's, the public address, anywhere, the network between
	// the provider and the gateway, the one between the gateway and the router, and the tenant's network.
	a := []string{"198.51.100.2/24", "198.51.100.1/24", "10.9.1.2/24", "10.9.1.1/24", "192.0.2.1/32", "0.0.0.0/0", "203.0.113.1/24", "203.0.113.2/24", "10.9.2.1/24", "10.9.2.2/24", "10.9.1.0/24"}
	if v6 {
		a = []string{"2001:db8:c::2/64", "2001:db8:c::1/64", "fd09::2/64", "fd09::1/64", "2001:db8:77::1/128", "::/0", "2001:db8:d::1/64", "2001:db8:d::2/64", "fd0a::1/64", "fd0a::2/64", "fd09::/64"}
	}
	host := func(i int) netip.Addr { return netip.MustParsePrefix(a[i]).Addr() }
	w.At, w.Inside, w.Public = netip.AddrPortFrom(host(0), 50000), netip.AddrPortFrom(host(2), 443), netip.AddrPortFrom(host(4), 443)
	nstest.Link(t, nstest.End{In: w.Client, Device: "net", Addrs: a[:1]}, nstest.End{In: w.provider, Device: "client", Addrs: a[1:2]})
	nstest.Link(t, nstest.End{In: w.provider, Device: "net", Addrs: a[6:7]}, nstest.End{In: w.Gateway, Device: "net"})
	nstest.Link(t, nstest.End{In: w.Router, Device: "net", Addrs: a[9:10]}, nstest.End{In: w.Gateway, Device: "site"})
	nstest.Link(t, nstest.End{In: w.Tenant, Device: "net", Addrs: a[2:3]}, nstest.End{In: w.Router, Device: "site", Addrs: a[3:4]})
	by := func(gateway netip.Addr) func() error {
		return func() error { return nstest.Route(a[5], "", netlink.Route{Gw: gateway.AsSlice()}) }
	}
	w.Client.Do(t, by(host(1)))
	w.Tenant.Do(t, by(host(3)))
	network, site := "net", "site"
	if k.Prepare != nil {
		network, site = k.Prepare(w)
	}
	routes := map[bool]string{false: "ipv4/ip_forward", true: "ipv6/conf/all/forwarding"}[v6]
	w.provider.Do(t, func() error { return errors.Join(nstest.Set(routes, "1"), by(host(7))()) })
	w.Router.Do(t, func() error { return errors.Join(nstest.Set(routes, "1"), by(host(8))()) })
	w.Gateway.Do(t, func() (err error) {
		err = errors.Join(nstest.Address("lo", a[4]), nstest.Address(network, a[7]), nstest.Address(site, a[8]), nstest.Set(routes, "1"), by(host(6))(),
			nstest.Route(a[10], "", netlink.Route{Gw: host(9).AsSlice()}))
		if err != nil {
			return err
		}
		if w.To, err = k.New(); err != nil {
			return err
		}
		w.gateways, err = net.ListenTCP("tcp", net.TCPAddrFromAddrPort(w.Public))
		return err
	})
	t.Cleanup(func() { w.To.Close(); w.gateways.Close() })
	w.tap = w.Client.Tap(t, w.see, "net")
	return w
}

// InSoftware has all machines but the gateway compute checksums, and cut segments, themselves: a bridge takes packets as they are.
func (w *World) InSoftware() {
	w.t.Helper()
	for _, end := range []struct {
		in      nstest.Namespace
		devices []string
	}{{w.Client, []string{"net"}}, {w.provider, []string{"client", "net"}}, {w.Router, []string{"net", "site"}}, {w.Tenant, []string{"net"}}} {
		for _, d := range end.devices {
			end.in.Do(w.t, func() error { return netns.ChecksumsInSoftware(d) })
		}
	}
}

func (w *World) parse(p nstest.Passed) gopacket.Packet {
	return gopacket.NewPacket(p.Bytes, map[bool]gopacket.LayerType{false: layers.LayerTypeIPv4, true: layers.LayerTypeIPv6}[w.V6], gopacket.NoCopy)
}

// ownTTL is that of a machine's own packets.
const ownTTL = 64

// isNeighbour reports whether a packet of ICMPv6 is one that only passes between neighbours.
func isNeighbour(p gopacket.Packet) bool {
	kind := p.Layer(layers.LayerTypeICMPv6).(*layers.ICMPv6).TypeCode.Type()
	return kind >= layers.ICMPv6TypeRouterSolicitation
}

// see counts what the client's network must not see.
func (w *World) see(p nstest.Passed) {
	var source net.IP
	var ttl uint8
	packet := w.parse(p)
	switch ip := packet.NetworkLayer().(type) {
	case *layers.IPv4:
		source, ttl = ip.SrcIP, ip.TTL
	case *layers.IPv6:
		source, ttl = ip.SrcIP, ip.HopLimit
	}
	tcp, ok := packet.Layer(layers.LayerTypeTCP).(*layers.TCP)
	if ok && w.log.note(tcp, p.Outgoing) {
		w.resets.Add(1)
	}
	icmp := packet.Layer(layers.LayerTypeICMPv4)
	if icmp != nil || packet.Layer(layers.LayerTypeICMPv6) != nil && !isNeighbour(packet) {
		ok = true
		w.errors.Add(1)
	}
	if icmp != nil && ^checksum.Checksum(icmp.LayerPayload()[:20], 0) != 0 {
		w.strange.Add(1)
	}
	if bytes.Contains(p.Bytes, w.Inside.Addr().AsSlice()) {
		w.named.Add(1)
	}
	if ok && !p.Outgoing && (ttl != ownTTL-1 || !source.Equal(w.Public.Addr().AsSlice())) {
		w.strange.Add(1)
	}
}

// connect connects the calling thread's namespace, which is the client's, from its one port.
func (w *World) connect(to netip.AddrPort) (*net.TCPConn, error) {
	c, err := (&net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(w.At), Timeout: polltest.Patience}).Dial("tcp", to.String())
	if err != nil {
		return nil, err
	}
	return c.(*net.TCPConn), nil
}

// dial connects the client, from its one port, to the gateway.
func (w *World) dial() (near, far *net.TCPConn) {
	w.t.Helper()
	w.Client.Do(w.t, func() (err error) {
		near, err = w.connect(w.Public)
		return err
	})
	if err := w.gateways.SetDeadline(time.Now().Add(polltest.Patience)); err != nil {
		w.t.Fatal(err)
	}
	far, err := w.gateways.AcceptTCP()
	if err != nil {
		w.t.Fatal(err)
	}
	w.keep(near, far)
	return near, far
}

// keep closes connections at the test's end, and bounds what it waits for them.
func (w *World) keep(all ...*net.TCPConn) {
	w.t.Helper()
	for _, c := range all {
		w.t.Cleanup(func() { c.Close() })
		if err := c.SetDeadline(time.Now().Add(polltest.Patience)); err != nil {
			w.t.Fatal(err)
		}
	}
}

// Moved connects the client, and moves the connection to the tenant.
func (w *World) Moved() (near, far *net.TCPConn) {
	w.t.Helper()
	near, at := w.dial()
	held, err := tcprepair.Hold(at)
	if err != nil {
		w.t.Fatal(err)
	}
	s, err := held.State()
	if err != nil {
		w.t.Fatal(err)
	}
	direct := w.past != nil
	if !direct {
		s.Local = w.Inside
	}
	var twin *tcprepair.Held
	w.Tenant.Do(w.t, func() (err error) {
		twin, err = tcprepair.Restore(s, tcprepair.Options{Foreign: direct})
		return err
	})
	w.Gateway.Do(w.t, func() error {
		if direct {
			return w.To.(DirectSwitch).LeadDirect(w.At, w.Public, w.Inside)
		}
		return w.To.Lead(w.At, w.Public, w.Inside)
	})
	if s, ok := w.To.(lead.Settler); ok {
		s.Settle()
	}
	if err := held.Close(); err != nil {
		w.t.Fatal(err)
	}
	if far, err = twin.Resume(); err != nil {
		w.t.Fatal(err)
	}
	w.keep(far)
	return near, far
}

// Talk passes bytes both ways.
func (w *World) Talk(near, far net.Conn) {
	w.t.Helper()
	w.pass(near, far, 100_000)
}

// pass passes so many bytes each way.
func (w *World) pass(near, far net.Conn, size int) {
	w.t.Helper()
	for _, pair := range [][2]net.Conn{{near, far}, {far, near}} {
		text := make([]byte, size)
		for i := range text {
			text[i] = byte(i / 7)
		}
		sent := make(chan error, 1)
		go func() {
			_, err := pair[0].Write(text)
			sent <- err
		}()
		got := make([]byte, len(text))
		if _, err := io.ReadFull(pair[1], got); err != nil || string(got) != string(text) {
			w.t.Fatalf("the bytes did not pass: %v", err)
		}
		if err := <-sent; err != nil {
			w.t.Fatal(err)
		}
	}
}

// has reports whether the switch has an entry, or noted what happened.
func (w *World) has(what string) (has bool, err error) {
	err = w.Gateway.Run(func() (err error) {
		has, err = w.kind.Has(w, what)
		return err
	})
	return has, err
}

func (w *World) await(set string, want bool) {
	w.t.Helper()
	polltest.Until(w.t, func() error {
		if has, err := w.has(set); err != nil || has != want {
			return fmt.Errorf("%s has the connection: %v, %w", set, has, err)
		}
		return nil
	})
}

// gone waits until no socket of a namespace has a port.
func (w *World) gone(of nstest.Namespace, port uint16) {
	w.t.Helper()
	polltest.Until(w.t, func() error {
		return of.Run(func() error {
			state, err := nstest.TCPState(port)
			if err == nil && state != 0 {
				err = fmt.Errorf("port %d is in state %d", port, state)
			}
			return err
		})
	})
}

func (w *World) quiet() {
	w.t.Helper()
	w.tap.Drain()
	if n := w.resets.Load(); n > 0 {
		w.t.Errorf("%d resets:\n%s", n, w.log.text())
	}
	if n := w.errors.Load(); n > 0 {
		w.t.Errorf("%d ICMP errors", n)
	}
	w.unnamed()
}

// unnamed fails if the client's network saw more of the tenant than the gateway would show.
func (w *World) unnamed() {
	w.t.Helper()
	w.tap.Drain()
	if n := w.named.Load(); n > 0 {
		w.t.Errorf("%d packets have the tenant's address", n)
	}
	if n := w.strange.Load(); n > 0 {
		w.t.Errorf("%d packets show that they are not the gateway's", n)
	}
}

// Finish ends a connection from the tenant's side, so that the client's port is free at once.
func (w *World) Finish(near, far *net.TCPConn) {
	w.t.Helper()
	if err := far.CloseWrite(); err != nil {
		w.t.Fatal(err)
	}
	if got, err := io.ReadAll(near); err != nil || len(got) > 0 {
		w.t.Fatalf("%q, %v", got, err)
	}
	near.Close()
	if got, err := io.ReadAll(far); err != nil || len(got) > 0 {
		w.t.Fatalf("%q, %v", got, err)
	}
	far.Close()
	w.gone(w.Client, w.At.Port())
}

// breakOff ends a connection by a reset of the client's.
func (w *World) breakOff(near, far *net.TCPConn) {
	w.t.Helper()
	if err := near.SetLinger(0); err != nil {
		w.t.Fatal(err)
	}
	near.Close()
	if _, err := far.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNRESET) {
		w.t.Errorf("the tenant reads %v", err)
	}
	far.Close()
	w.gone(w.Tenant, w.Inside.Port())
}
