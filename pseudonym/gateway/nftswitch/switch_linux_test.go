package nftswitch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"heddle/internal/errhint"
	"heddle/internal/nft"
	"heddle/internal/nstest"
	"heddle/internal/polltest"
	"heddle/internal/tcprepair"
)

// world has a client, its provider, a gateway that routes, and a tenant behind it.
type world struct {
	t                                 *testing.T
	v6                                bool
	client, provider, gateway, tenant nstest.Namespace
	at                                netip.AddrPort // the client, always from one port
	public, inside                    netip.AddrPort // the gateway, and the tenant
	to                                *Switch
	tap                               *nstest.Tap
	resets                            atomic.Int64 // that client or gateway sent to each other
	errors                            atomic.Int64 // of ICMP
	strange                           atomic.Int64 // packets to the client that are not like the gateway's own
	named                             atomic.Int64 // packets with the tenant's address
	log                               segments
	gateways                          *net.TCPListener
}

// both runs a test in a world of IPv4 and in one of IPv6.
func both(t *testing.T, test func(*world)) {
	for name, v6 := range map[string]bool{"IPv4": false, "IPv6": true} {
		t.Run(name, func(t *testing.T) { test(newWorld(t, v6)) })
	}
}

func newWorld(t *testing.T, v6 bool) *world {
	t.Helper()
	w := &world{t: t, v6: v6, client: nstest.New(t), provider: nstest.New(t), gateway: nstest.New(t), tenant: nstest.New(t)}
	// The networks of client and tenant, the host that each has in them, the router's, the public address, anywhere, and the network between
	// the provider and the gateway.
	a := []string{"198.51.100.2/24", "198.51.100.1/24", "10.9.1.2/24", "10.9.1.1/24", "192.0.2.1/32", "0.0.0.0/0", "203.0.113.1/24", "203.0.113.2/24"}
	if v6 {
		a = []string{"2001:db8:c::2/64", "2001:db8:c::1/64", "fd09::2/64", "fd09::1/64", "2001:db8:77::1/128", "::/0", "2001:db8:d::1/64", "2001:db8:d::2/64"}
	}
	host := func(i int) netip.Addr { return netip.MustParsePrefix(a[i]).Addr() }
	w.at, w.inside, w.public = netip.AddrPortFrom(host(0), 50000), netip.AddrPortFrom(host(2), 443), netip.AddrPortFrom(host(4), 443)
	nstest.Link(t, nstest.End{In: w.client, Device: "net", Addrs: a[:1]}, nstest.End{In: w.provider, Device: "client", Addrs: a[1:2]})
	nstest.Link(t, nstest.End{In: w.provider, Device: "net", Addrs: a[6:7]}, nstest.End{In: w.gateway, Device: "net", Addrs: a[7:8]})
	nstest.Link(t, nstest.End{In: w.tenant, Device: "net", Addrs: a[2:3]}, nstest.End{In: w.gateway, Device: "site", Addrs: a[3:4]})
	by := func(gateway netip.Addr) func() error {
		return func() error { return nstest.Route(a[5], "", netlink.Route{Gw: gateway.AsSlice()}) }
	}
	w.client.Do(t, by(host(1)))
	w.tenant.Do(t, by(host(3)))
	routes := map[bool]string{false: "ipv4/ip_forward", true: "ipv6/conf/all/forwarding"}[v6]
	w.provider.Do(t, func() error { return errors.Join(nstest.Set(routes, "1"), by(host(7))()) })
	w.gateway.Do(t, func() (err error) {
		if err := errors.Join(nstest.Address("lo", a[4]), nstest.Set(routes, "1"), by(host(6))()); err != nil {
			return err
		}
		if w.to, err = New(); err != nil {
			return err
		}
		w.gateways, err = net.ListenTCP("tcp", net.TCPAddrFromAddrPort(w.public))
		return err
	})
	t.Cleanup(func() { w.to.Close(); w.gateways.Close() })
	w.tap = w.client.Tap(t, w.see, "net")
	return w
}

func (w *world) parse(p nstest.Passed) gopacket.Packet {
	return gopacket.NewPacket(p.Bytes, map[bool]gopacket.LayerType{false: layers.LayerTypeIPv4, true: layers.LayerTypeIPv6}[w.v6], gopacket.NoCopy)
}

// checksum returns that of RFC 1071, which is 0 for a header with the right one.
func checksum(header []byte) uint16 {
	var sum uint32
	for i := 0; i < len(header); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(header[i:]))
	}
	sum = sum&0xffff + sum>>16
	return ^uint16(sum&0xffff + sum>>16)
}

// ownTTL is that of a machine's own packets.
const ownTTL = 64

// isNeighbour reports whether a packet of ICMPv6 is one that only passes between neighbours.
func isNeighbour(p gopacket.Packet) bool {
	kind := p.Layer(layers.LayerTypeICMPv6).(*layers.ICMPv6).TypeCode.Type()
	return kind >= layers.ICMPv6TypeRouterSolicitation
}

// see counts what the client's network must not see.
func (w *world) see(p nstest.Passed) {
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
	if icmp != nil && checksum(icmp.LayerPayload()[:20]) != 0 {
		w.strange.Add(1)
	}
	if bytes.Contains(p.Bytes, w.inside.Addr().AsSlice()) {
		w.named.Add(1)
	}
	if ok && !p.Outgoing && (ttl != ownTTL-1 || !source.Equal(w.public.Addr().AsSlice())) {
		w.strange.Add(1)
	}
}

// dial connects the client, from its one port, to the gateway.
func (w *world) dial() (near, far *net.TCPConn) {
	w.t.Helper()
	w.client.Do(w.t, func() (err error) {
		near, err = net.DialTCP("tcp", net.TCPAddrFromAddrPort(w.at), net.TCPAddrFromAddrPort(w.public))
		return err
	})
	if err := w.gateways.SetDeadline(time.Now().Add(polltest.Patience)); err != nil {
		w.t.Fatal(err)
	}
	far, err := w.gateways.AcceptTCP()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, c := range []*net.TCPConn{near, far} {
		w.t.Cleanup(func() { c.Close() })
		w.patient(c)
	}
	return near, far
}

func (w *world) patient(c *net.TCPConn) {
	if err := c.SetDeadline(time.Now().Add(polltest.Patience)); err != nil {
		w.t.Fatal(err)
	}
}

// moved connects the client, and moves the connection to the tenant.
func (w *world) moved() (near, far *net.TCPConn) {
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
	s.Local = w.inside
	var twin *tcprepair.Held
	w.tenant.Do(w.t, func() (err error) {
		twin, err = tcprepair.Restore(s, tcprepair.Options{})
		return err
	})
	if err := w.to.Lead(w.at, w.public, w.inside); err != nil {
		w.t.Fatal(err)
	}
	if err := held.Close(); err != nil {
		w.t.Fatal(err)
	}
	if far, err = twin.Resume(); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { far.Close() })
	w.patient(far)
	return near, far
}

// talk passes bytes both ways.
func (w *world) talk(near, far net.Conn) {
	w.t.Helper()
	for _, pair := range [][2]net.Conn{{near, far}, {far, near}} {
		text := make([]byte, 100_000)
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

// elements returns what a set has.
func (w *world) elements(set string) (all []nftables.SetElement, err error) {
	err = w.gateway.Run(func() error {
		conn, err := nft.Connect()
		if err == nil {
			sets := newSets(nft.Inet(Table), w.v6)
			all, err = conn.GetSetElements(map[string]*nftables.Set{"to": sets.to, "back": sets.back, "finished": sets.finished, "answered": sets.answered, "ended": sets.ended}[set])
		}
		return err
	})
	return all, err
}

// has reports whether a set has the client.
func (w *world) has(set string) (bool, error) {
	all, err := w.elements(set)
	return len(all) > 0, err
}

func (w *world) await(set string, want bool) {
	w.t.Helper()
	polltest.Until(w.t, func() error {
		if has, err := w.has(set); err != nil || has != want {
			return fmt.Errorf("%s has the connection: %v, %w", set, has, err)
		}
		return nil
	})
}

// gone waits until no socket of a namespace has a port.
func (w *world) gone(of nstest.Namespace, port uint16) {
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

func (w *world) quiet() {
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
func (w *world) unnamed() {
	w.t.Helper()
	w.tap.Drain()
	if n := w.named.Load(); n > 0 {
		w.t.Errorf("%d packets have the tenant's address", n)
	}
	if n := w.strange.Load(); n > 0 {
		w.t.Errorf("%d packets show that they are not the gateway's", n)
	}
}

// finish ends a connection from the tenant's side, so that the client's port is free at once.
func (w *world) finish(near, far *net.TCPConn) {
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
	w.gone(w.client, w.at.Port())
}

// breakOff ends a connection by a reset of the client's.
func (w *world) breakOff(near, far *net.TCPConn) {
	w.t.Helper()
	if err := near.SetLinger(0); err != nil {
		w.t.Fatal(err)
	}
	near.Close()
	if _, err := far.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNRESET) {
		w.t.Errorf("the tenant reads %v", err)
	}
	far.Close()
	w.gone(w.tenant, w.inside.Port())
}

func TestTenantHasTheConnection(t *testing.T) { both(t, tenantHasTheConnection) }

func tenantHasTheConnection(w *world) {
	t := w.t
	near, far := w.moved()
	if got := far.RemoteAddr().String(); got != w.at.String() {
		t.Errorf("the tenant sees %v", got)
	}
	w.talk(near, far)
	// A gateway that starts again goes on with what its switch has.
	var again *Switch
	w.gateway.Do(t, func() (err error) {
		again, err = New()
		return err
	})
	defer again.Close()
	w.talk(near, far)
	w.finish(near, far)
	w.quiet()
}

// A client may use a port again as soon as its connection has ended, and gets to the gateway.
func TestPortIsUsedAgain(t *testing.T) { both(t, portIsUsedAgain) }

func portIsUsedAgain(w *world) {
	for range 3 {
		near, far := w.moved()
		w.talk(near, far)
		w.finish(near, far)
		w.await("ended", true)
	}
	near, far := w.dial()
	w.await("ended", false)
	w.await("to", false)
	w.talk(near, far)
	w.quiet()
}

// A client that breaks off says so to its tenant. The first SYN of the next connection finds that out.
func TestPortIsUsedAgainAfterAReset(t *testing.T) { both(t, portIsUsedAgainAfterAReset) }

func portIsUsedAgainAfterAReset(w *world) {
	near, far := w.moved()
	w.talk(near, far)
	w.breakOff(near, far)
	near, far = w.moved()
	w.talk(near, far)
}

// Packets that somebody forges in the client's name end nothing.
func TestForgedPackets(t *testing.T) { both(t, forgedPackets) }

func forgedPackets(w *world) {
	t := w.t
	near, far := w.moved()
	w.talk(near, far)
	for _, flags := range []layers.TCP{{SYN: true}, {FIN: true, ACK: true}, {SYN: true}, {RST: true}, {SYN: true}} {
		w.forge(w.public, flags, ownTTL)
	}
	w.forge(w.inside, layers.TCP{SYN: true}, ownTTL)
	w.await("finished", true)
	w.talk(near, far)
	if has, err := w.has("ended"); err != nil || has {
		t.Errorf("forged packets ended the connection: %v", err)
	}
	if has, err := w.has("back"); err != nil || !has {
		t.Errorf("a forged SYN to the tenant ended the connection: %v", err)
	}
}

// forged is the sequence number of forged packets.
const forged = 1

// forge sends a packet from the client's port to an address, with sequence numbers that are wrong.
func (w *world) forge(at netip.AddrPort, tcp layers.TCP, ttl uint8) {
	w.t.Helper()
	tcp.SrcPort, tcp.DstPort, tcp.Seq, tcp.Window = layers.TCPPort(w.at.Port()), layers.TCPPort(at.Port()), forged, 1000
	from, to := net.IP(w.at.Addr().AsSlice()), net.IP(at.Addr().AsSlice())
	var ip interface {
		gopacket.NetworkLayer
		gopacket.SerializableLayer
	} = &layers.IPv4{Version: 4, TTL: ttl, Protocol: layers.IPProtocolTCP, SrcIP: from, DstIP: to}
	family, address := unix.AF_INET, unix.Sockaddr(&unix.SockaddrInet4{Addr: [4]byte(to[:4])})
	if w.v6 {
		ip = &layers.IPv6{Version: 6, HopLimit: ttl, NextHeader: layers.IPProtocolTCP, SrcIP: from, DstIP: to}
		family, address = unix.AF_INET6, &unix.SockaddrInet6{Addr: at.Addr().As16()}
	}
	b := gopacket.NewSerializeBuffer()
	err := errors.Join(tcp.SetNetworkLayerForChecksum(ip), gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, ip, &tcp))
	if err != nil {
		w.t.Fatal(err)
	}
	w.client.Do(w.t, func() error {
		fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.Sendto(fd, b.Bytes(), 0, address)
	})
}

// An operator who removes the table breaks connections, and those that follow work.
func TestTableIsRemoved(t *testing.T) { both(t, tableIsRemoved) }

func tableIsRemoved(w *world) {
	t := w.t
	w.gateway.Do(t, func() error {
		if err := nft.Remove(nft.Inet(Table)); err != nil {
			return err
		}
		if w.to.Lead(w.at, w.public, w.inside) == nil {
			t.Error("it leads without a table")
		}
		return nil
	})
	near, far := w.moved()
	w.talk(near, far)
}

// An entry has a time, so that it ends if no packet comes any more.
func TestEntriesEnd(t *testing.T) { both(t, entriesEnd) }

func entriesEnd(w *world) {
	t := w.t
	near, far := w.moved()
	w.talk(near, far)
	w.finish(near, far)
	for set, want := range map[string]time.Duration{"to": Idle, "back": Idle, "finished": Idle, "answered": Idle, "ended": 2 * Idle} {
		if all, err := w.elements(set); err != nil || len(all) != 1 || all[0].Timeout != want || all[0].Expires > want {
			t.Errorf("%s has %+v, %v", set, all, err)
		}
	}
}

func TestRefusals(t *testing.T) {
	w := newWorld(t, false)
	for _, c := range [][3]string{
		{"[2001:db8::1]:1", "[2001:db8::2]:443", "[2001:db8::3]:443"}, // it does not route IPv6
		{"198.51.100.2:1", "192.0.2.1:443", "[2001:db8::3]:443"},
		{"198.51.100.2:1", "192.0.2.1:443", "10.9.1.2:444"},
	} {
		if w.to.Lead(netip.MustParseAddrPort(c[0]), netip.MustParseAddrPort(c[1]), netip.MustParseAddrPort(c[2])) == nil {
			t.Errorf("it leads %v", c)
		}
	}
	w.client.Do(t, func() error {
		if _, err := New(); err == nil || !strings.Contains(errhint.Of(err), "net.ipv4.ip_forward=1") {
			t.Errorf("on a machine that does not route: %v; %s", err, errhint.Of(err))
		}
		return nil
	})
	failed := make(chan error)
	go func() {
		failed <- w.gateway.Run(func() error {
			runtime.LockOSThread() // once more than Run unlocks: the thread ends with its goroutine
			header, none := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, [2]unix.CapUserData{}
			if err := unix.Capset(&header, &none[0]); err != nil {
				return err
			}
			_, err := New()
			return err
		})
	}()
	if err := <-failed; !errors.Is(err, unix.EPERM) || !strings.Contains(errhint.Of(err), "CAP_NET_ADMIN") {
		t.Errorf("without a right: %v; %s", err, errhint.Of(err))
	}
}
