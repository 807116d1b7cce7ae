package v6switch

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"heddle/internal/bpf"
	"heddle/internal/errhint"
	"heddle/internal/nstest"
	"heddle/internal/polltest"
	"heddle/pseudonym/address"
)

var prefix = netip.MustParsePrefix("2001:db8:77:1::/64")

const port = 443

// Numbers of the tenants, and of the gateway.
const (
	gatewayNumber = 0
	newsNumber    = 42
	mailNumber    = 43
)

// world has a client, a switch that routes, and two tenants behind it, each with a server that says its name.
type world struct {
	t              *testing.T
	client, router nstest.Namespace
	from           netip.Addr // the client
	tenants        map[uint16]*tenant
	own            *tenant // the gateway on the switch
	to             *Switch
	epochs         []address.Epoch // the newest first
	ring           *address.Ring
	tap            *nstest.Tap
	answers        atomic.Int64 // packets of IPv6 to the client, but for neighbour discovery
	resets         atomic.Int64 // of TCP, or errors of ICMPv6
	strange        atomic.Int64 // packets to the client from an address that is not of the prefix
}

type tenant struct {
	in   nstest.Namespace
	at   netip.Addr
	name string
	all  chan *net.TCPConn // its connections
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, client: nstest.New(t), router: nstest.New(t), from: netip.MustParseAddr("2001:db8:c::2"), tenants: map[uint16]*tenant{}}
	nstest.Link(t, nstest.End{In: w.client, Device: "net", Addrs: []string{w.from.String() + "/64"}}, nstest.End{In: w.router, Device: "net", Addrs: []string{"2001:db8:c::1/64"}})
	w.client.Do(t, func() error { return nstest.Route("::/0", "", netlink.Route{Gw: net.ParseIP("2001:db8:c::1")}) })
	w.router.Do(t, func() error { return nstest.Set("ipv6/conf/all/forwarding", "1") })
	for number, name := range map[uint16]string{newsNumber: "news", mailNumber: "mail"} {
		inside := fmt.Sprintf("fd09:%d::", number)
		s := &tenant{in: nstest.New(t), at: netip.MustParseAddr(inside + "2"), name: name}
		nstest.Link(t, nstest.End{In: s.in, Device: "net", Addrs: []string{inside + "2/64"}}, nstest.End{In: w.router, Device: name, Addrs: []string{inside + "1/64"}})
		s.in.Do(t, func() error {
			// This is all that a tenant needs: ip -6 route add local PREFIX dev lo.
			return errors.Join(nstest.Route(prefix.String(), "lo", netlink.Route{Type: unix.RTN_LOCAL, Table: unix.RT_TABLE_LOCAL, Scope: netlink.SCOPE_HOST}),
				nstest.Route("::/0", "", netlink.Route{Gw: net.ParseIP(inside + "1")}))
		})
		s.serve(t)
		w.tenants[number] = s
	}
	w.own = &tenant{in: w.router, at: Own, name: "gateway"}
	w.own.serve(t)
	w.rotate()
	w.to = w.open()
	w.tap = w.client.Tap(t, w.see, "net")
	return w
}

// serve has a server that knows nothing of pseudo-addresses.
func (s *tenant) serve(t *testing.T) {
	t.Helper()
	s.all = make(chan *net.TCPConn, 16)
	s.in.Do(t, func() error {
		l, err := net.Listen("tcp", fmt.Sprintf("[::]:%d", port))
		if err != nil {
			return err
		}
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				s.all <- c.(*net.TCPConn)
				if _, err := io.WriteString(c, s.name+"\n"); err != nil {
					return
				}
			}
		}()
		return nil
	})
}

// rotate adds a key.
func (w *world) rotate() {
	w.t.Helper()
	from := time.Unix(int64(len(w.epochs)), 0)
	w.epochs = append([]address.Epoch{{Key: address.NewKey(), From: from}}, w.epochs...)
	var err error
	if w.ring, err = address.NewRing(w.epochs[:min(len(w.epochs), address.MaxKeys)]...); err != nil {
		w.t.Fatal(err)
	}
}

// fill tells a switch what it has to know.
func (w *world) fill(s *Switch) error {
	at := map[uint16]netip.Addr{gatewayNumber: Own}
	for number, t := range w.tenants {
		at[number] = t.at
	}
	return errors.Join(s.SetKeys(w.ring), s.SetTenants(at))
}

// open begins as a process does.
func (w *world) open() (s *Switch) {
	w.t.Helper()
	w.router.Do(w.t, func() (err error) {
		if s, err = New(Options{Device: "net", Prefix: prefix, Ports: []uint16{port, 993}}); err != nil {
			if errors.Is(err, unix.EPERM) || errors.Is(err, ebpf.ErrNotSupported) {
				w.t.Skip("typed skip:", err)
			}
			return err
		}
		return errors.Join(w.fill(s), s.Attach())
	})
	w.t.Cleanup(func() { s.Close() })
	return s
}

// see counts what reaches the client.
func (w *world) see(p nstest.Passed) {
	packet := gopacket.NewPacket(p.Bytes, layers.LayerTypeIPv6, gopacket.NoCopy)
	ip, ok := packet.NetworkLayer().(*layers.IPv6)
	if !ok || p.Outgoing {
		return
	}
	icmp, _ := packet.Layer(layers.LayerTypeICMPv6).(*layers.ICMPv6)
	if icmp != nil && icmp.TypeCode.Type() >= 130 && icmp.TypeCode.Type() <= 143 { // neighbour discovery, multicast listeners
		return
	}
	w.answers.Add(1)
	if tcp, ok := packet.Layer(layers.LayerTypeTCP).(*layers.TCP); ok && tcp.RST || icmp != nil {
		w.resets.Add(1)
	}
	if from, _ := netip.AddrFromSlice(ip.SrcIP); !prefix.Contains(from) {
		w.strange.Add(1)
	}
}

// address gives an address as an answer of DNS has it.
func (w *world) address(number uint16) netip.Addr {
	w.t.Helper()
	a, err := w.ring.Seal(prefix, number, "name", w.epochs[0].From)
	if err != nil {
		w.t.Fatal(err)
	}
	return a
}

// dial connects the client.
func (w *world) dial(to netip.Addr) *net.TCPConn {
	w.t.Helper()
	var c net.Conn
	w.client.Do(w.t, func() (err error) {
		c, err = net.DialTimeout("tcp", netip.AddrPortFrom(to, port).String(), polltest.Patience)
		return err
	})
	w.t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(polltest.Patience)); err != nil {
		w.t.Fatal(err)
	}
	return c.(*net.TCPConn)
}

// visit connects the client to a server, and checks that it is the right one and sees the client.
func (w *world) visit(s *tenant, to netip.Addr) (near, far *net.TCPConn) {
	w.t.Helper()
	near = w.dial(to)
	if line, err := bufio.NewReader(near).ReadString('\n'); err != nil || line != s.name+"\n" {
		w.t.Fatalf("%v is %q, %v", to, line, err)
	}
	far = <-s.all
	w.t.Cleanup(func() { far.Close() })
	if err := far.SetDeadline(time.Now().Add(polltest.Patience)); err != nil {
		w.t.Fatal(err)
	}
	if got := far.RemoteAddr().(*net.TCPAddr).AddrPort().Addr(); got != w.from {
		w.t.Errorf("%s sees %v", s.name, got)
	}
	if got := far.LocalAddr().(*net.TCPAddr).AddrPort().Addr(); got != to {
		w.t.Errorf("%s is visited at %v", s.name, got)
	}
	return near, far
}

// talk passes bytes both ways.
func (w *world) talk(near, far net.Conn) {
	w.t.Helper()
	for _, pair := range [][2]net.Conn{{near, far}, {far, near}} {
		text := strings.Repeat("heddle ", 30_000)
		sent := make(chan error, 1)
		go func() {
			_, err := io.WriteString(pair[0], text)
			sent <- err
		}()
		got := make([]byte, len(text))
		if _, err := io.ReadFull(pair[1], got); err != nil || string(got) != text {
			w.t.Fatalf("the bytes did not pass: %v", err)
		}
		if err := <-sent; err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *world) quiet() {
	w.t.Helper()
	w.tap.Drain()
	if n := w.resets.Load(); n > 0 {
		w.t.Errorf("%d resets and ICMP errors", n)
	}
	if n := w.strange.Load(); n > 0 {
		w.t.Errorf("%d packets are from another address than the pseudo-address", n)
	}
}

// segments is how many segments of TCP the machine of the switch took for itself (InSegs of RFC 4022).
func (w *world) segments() (n int) {
	w.t.Helper()
	w.router.Do(w.t, func() error {
		text, err := os.ReadFile("/proc/thread-self/net/snmp")
		if err != nil {
			return err
		}
		var names []string
		for line := range strings.Lines(string(text)) {
			fields := strings.Fields(line)
			if fields[0] != "Tcp:" {
				continue
			}
			if names == nil {
				names = fields
				continue
			}
			for i, name := range names {
				if name == "InSegs" {
					n, err = strconv.Atoi(fields[i])
					return err
				}
			}
		}
		return errors.New("the kernel does not count segments")
	})
	return n
}

func TestServersAnswerWithoutTheGateway(t *testing.T) {
	w := newWorld(t)
	before := w.segments()
	for number, s := range w.tenants {
		w.talk(w.visit(s, w.address(number)))
	}
	if n := w.segments() - before; n > 0 {
		t.Errorf("the machine of the switch took %d segments", n)
	}
	if c := w.to.Counts(); c.Led == 0 || c.Own+c.Unknown+c.Refused+c.Unreachable > 0 {
		t.Errorf("the switch counted %+v", c)
	}
	w.quiet()
}

// A name that leads to the gateway, as one that nobody has, has an address of the same kind.
func TestGatewayHasAddressesToo(t *testing.T) {
	w := newWorld(t)
	w.talk(w.visit(w.own, w.address(gatewayNumber)))
	if c := w.to.Counts(); c.Own == 0 || c.Led > 0 {
		t.Errorf("the switch counted %+v", c)
	}
	w.quiet()
}

// Connections go on while keys change, and end without a sign once their key is gone.
func TestKeysChange(t *testing.T) {
	w := newWorld(t)
	near, far := w.visit(w.tenants[newsNumber], w.address(newsNumber))
	for range address.MaxKeys - 1 {
		w.rotate()
		if err := w.fill(w.to); err != nil {
			t.Fatal(err)
		}
		w.talk(near, far)
		w.talk(w.visit(w.tenants[mailNumber], w.address(mailNumber)))
	}
	if c := w.to.Counts(); c.Unknown > 0 {
		t.Errorf("the switch counted %+v", c)
	}
	w.rotate()
	if err := w.fill(w.to); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(near, "is somebody there"); err != nil {
		t.Fatal(err)
	}
	w.await("a packet of a deleted key", func(c Counts) bool { return c.Unknown > 0 })
	w.quiet()
}

func (w *world) await(what string, seen func(Counts) bool) {
	w.t.Helper()
	polltest.Until(w.t, func() error {
		if c := w.to.Counts(); !seen(c) {
			return fmt.Errorf("%s is not counted: %+v", what, c)
		}
		return nil
	})
}

// A process that starts again takes over from the one before, and no packet is lost.
func TestAnotherProcessTakesOver(t *testing.T) {
	w := newWorld(t)
	near, far := w.visit(w.tenants[newsNumber], w.address(newsNumber))
	if err := w.to.Close(); err != nil {
		t.Fatal(err)
	}
	w.talk(near, far) // without any process
	w.to = w.open()
	w.talk(near, far)
	if c := w.to.Counts(); c.Led == 0 {
		t.Errorf("the new one counted %+v", c)
	}
	w.router.Do(t, func() error {
		device, err := netlink.LinkByName("net")
		if err != nil {
			return err
		}
		if all, err := netlink.FilterList(device, bpf.In.Parent()); err != nil || len(all) != 1 {
			t.Errorf("the device has the filters %v, %v", all, err)
		}
		return nil
	})
	w.quiet()
}

// A tenant that is gone, or has moved, is so at once.
func TestTenantsChange(t *testing.T) {
	w := newWorld(t)
	to := w.address(newsNumber)
	w.visit(w.tenants[newsNumber], to)
	w.tenants[newsNumber], w.tenants[mailNumber] = w.tenants[mailNumber], w.tenants[newsNumber]
	if err := w.fill(w.to); err != nil {
		t.Fatal(err)
	}
	w.visit(w.tenants[newsNumber], to)
	if err := w.to.SetTenants(nil); err != nil {
		t.Fatal(err)
	}
	w.send(layers.IPProtocolTCP, to, 64, &layers.TCP{SrcPort: 1, DstPort: port, SYN: true})
	w.await("a packet to a tenant that is gone", func(c Counts) bool { return c.Unknown > 0 })
	w.quiet()
}

// Strangers get no answer at all, so that they cannot tell an address that leads somewhere from one that does not, but by what
// the tenant's server says to a client.
func TestSilence(t *testing.T) {
	w := newWorld(t)
	good := w.address(newsNumber)
	near, far := w.visit(w.tenants[newsNumber], good) // so that neighbours are known
	changed := func(bit int) netip.Addr {
		b := good.As16()
		b[15-bit/8] ^= 1 << (bit % 8)
		return netip.AddrFrom16(b)
	}
	syn := func() gopacket.SerializableLayer {
		return &layers.TCP{SrcPort: 1, DstPort: port, SYN: true, Window: 1000}
	}
	w.tap.Drain()
	before, counted := w.answers.Load(), w.to.Counts()
	unknown, refused := uint64(0), uint64(0)
	for bit := range 64 {
		if _, opens := w.ring.Open(changed(bit)); !opens { // one key opens one of 2^24
			w.send(layers.IPProtocolTCP, changed(bit), 64, syn())
			unknown++
		}
	}
	w.send(layers.IPProtocolTCP, w.address(4444), 64, syn()) // a number that no tenant has
	unknown++
	for _, c := range []struct {
		name  string
		kind  layers.IPProtocol
		hops  uint8
		parts []gopacket.SerializableLayer
	}{
		{"another port", layers.IPProtocolTCP, 64, []gopacket.SerializableLayer{&layers.TCP{SrcPort: 1, DstPort: 22, SYN: true}}},
		{"port 0", layers.IPProtocolTCP, 64, []gopacket.SerializableLayer{&layers.TCP{SrcPort: 1, DstPort: 0, SYN: true}}},
		{"few hops", layers.IPProtocolTCP, 7, []gopacket.SerializableLayer{syn()}},
		{"a datagram", layers.IPProtocolUDP, 64, []gopacket.SerializableLayer{&layers.UDP{SrcPort: 1, DstPort: port}}},
		{"a ping", layers.IPProtocolICMPv6, 64, []gopacket.SerializableLayer{&layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(layers.ICMPv6TypeEchoRequest, 0)},
			&layers.ICMPv6Echo{Identifier: 1}}},
		{"a fragment", layers.IPProtocolIPv6Fragment, 64, []gopacket.SerializableLayer{gopacket.Payload{6, 0, 0, 1, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1}}},
		{"an unknown header", 253, 64, []gopacket.SerializableLayer{gopacket.Payload("a protocol for experiments")}},
		{"options", layers.IPProtocolIPv6Destination, 64, []gopacket.SerializableLayer{gopacket.Payload{6, 0, 0x9e, 4, 0, 0, 0, 0}, syn()}},
		{"nothing", layers.IPProtocolNoNextHeader, 64, nil},
	} {
		w.send(c.kind, good, c.hops, c.parts...)
		refused++
		w.await(c.name, func(n Counts) bool { return n.Refused-counted.Refused >= refused })
	}
	w.await("all that is sent", func(c Counts) bool { return c.Unknown-counted.Unknown >= unknown })
	if c := w.to.Counts(); c.Unknown-counted.Unknown != unknown || c.Refused-counted.Refused != refused || c.Led != counted.Led {
		t.Errorf("%d of unknown addresses, and %d to be refused: the switch counted %+v after %+v", unknown, refused, c, counted)
	}
	w.tap.Drain()
	if n := w.answers.Load() - before; n > 0 {
		t.Errorf("strangers got %d packets", n)
	}
	w.talk(near, far)
	w.quiet()
}

// send sends one packet from the client's machine.
func (w *world) send(kind layers.IPProtocol, to netip.Addr, hops uint8, parts ...gopacket.SerializableLayer) {
	w.t.Helper()
	ip := &layers.IPv6{Version: 6, HopLimit: hops, NextHeader: kind, SrcIP: w.from.AsSlice(), DstIP: to.AsSlice()}
	for _, p := range parts {
		if sums, ok := p.(interface {
			SetNetworkLayerForChecksum(gopacket.NetworkLayer) error
		}); ok {
			if err := sums.SetNetworkLayerForChecksum(ip); err != nil {
				w.t.Fatal(err)
			}
		}
	}
	b := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, append([]gopacket.SerializableLayer{ip}, parts...)...); err != nil {
		w.t.Fatal(err)
	}
	w.client.Do(w.t, func() error {
		fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.Sendto(fd, b.Bytes(), 0, &unix.SockaddrInet6{Addr: to.As16()})
	})
}

// Messages that packets are too large reach the tenant, also those of the switch's own machine.
func TestTenantLearnsThePathsMTU(t *testing.T) {
	w := newWorld(t)
	w.router.Do(t, func() error {
		device, err := netlink.LinkByName("net")
		if err != nil {
			return err
		}
		return netlink.LinkSetMTU(device, 1300)
	})
	near, far := w.visit(w.tenants[newsNumber], w.address(newsNumber))
	text := strings.Repeat("heddle ", 30_000)
	go io.WriteString(far, text)
	if got, err := io.ReadAll(io.LimitReader(near, int64(len(text)))); err != nil || string(got) != text {
		t.Fatalf("%d bytes came: %v", len(got), err)
	}
	w.quiet()
}

// What is not for pseudo-addresses passes as it did.
func TestOthersPass(t *testing.T) {
	w := newWorld(t)
	s := w.tenants[newsNumber]
	w.talk(w.visit(s, s.at))
	if c := w.to.Counts(); c != (Counts{}) {
		t.Errorf("the switch counted %+v", c)
	}
}

// A tenant that the machine gets a route to later, by another machine.
func TestRoutesChange(t *testing.T) {
	w := newWorld(t)
	s, real := w.tenants[newsNumber], netip.MustParseAddr("fd0a::1")
	s.in.Do(t, func() error { return nstest.Address("lo", real.String()+"/128") })
	if err := w.to.SetTenants(map[uint16]netip.Addr{newsNumber: real}); err != nil {
		t.Fatal(err)
	}
	w.send(layers.IPProtocolTCP, w.address(newsNumber), 64, &layers.TCP{SrcPort: 1, DstPort: port, SYN: true})
	w.await("a packet to a tenant without a route", func(c Counts) bool { return c.Unreachable == 1 })
	w.router.Do(t, func() error { return nstest.Route("fd0a::/64", "", netlink.Route{Gw: s.at.AsSlice()}) })
	polltest.Until(t, func() error {
		if err := w.to.Follow(); err != nil {
			return err
		}
		w.to.mu.Lock()
		defer w.to.mu.Unlock()
		if w.to.hops[newsNumber].Index == 0 {
			return errors.New("the switch does not see the route")
		}
		return nil
	})
	w.talk(w.visit(s, w.address(newsNumber)))
	w.quiet()
}

func TestRefusals(t *testing.T) {
	w := newWorld(t)
	if w.to.SetTenants(map[uint16]netip.Addr{1: netip.MustParseAddr("192.0.2.1")}) == nil {
		t.Error("a tenant of IPv4 is led to")
	}
	good := Options{Device: "net", Prefix: prefix, Ports: []uint16{port}}
	for name, change := range map[string]func(*Options){
		"no prefix":    func(o *Options) { o.Prefix = netip.Prefix{} },
		"a /56":        func(o *Options) { o.Prefix = netip.MustParsePrefix("2001:db8::/56") },
		"no port":      func(o *Options) { o.Ports = nil },
		"nine ports":   func(o *Options) { o.Ports = make([]uint16, MostPorts+1) },
		"no device":    func(o *Options) { o.Device = "none" },
		"not Ethernet": func(o *Options) { o.Device = "tunnel" },
	} {
		w.router.Do(t, func() error {
			if name == "not Ethernet" {
				if err := netlink.LinkAdd(&netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Name: "tunnel"}, Mode: netlink.TUNTAP_MODE_TUN}); err != nil {
					return err
				}
			}
			o := good
			change(&o)
			s, err := New(o)
			if err == nil {
				defer s.Close()
				err = s.Attach()
			}
			if err == nil || errhint.Of(err) == "" {
				t.Errorf("%s: %v; %q", name, err, errhint.Of(err))
			}
			return nil
		})
	}
	w.client.Do(t, func() error {
		s, err := New(good)
		if err != nil {
			return err
		}
		defer s.Close()
		if err := s.Attach(); err == nil || !strings.Contains(errhint.Of(err), "net.ipv6.conf.all.forwarding=1") {
			t.Errorf("on a machine that does not route: %v; %s", err, errhint.Of(err))
		}
		return nil
	})
	failed := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with its goroutine
		header, none := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, [2]unix.CapUserData{}
		if err := unix.Capset(&header, &none[0]); err != nil {
			failed <- err
			return
		}
		_, err := New(good)
		failed <- err
	}()
	if err := <-failed; !errors.Is(err, unix.EPERM) || !strings.Contains(errhint.Of(err), "CAP_BPF") {
		t.Errorf("without a right: %v; %s", err, errhint.Of(err))
	}
}
