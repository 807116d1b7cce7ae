package v6switch

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"runtime"
	"strings"
	"testing"

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
	// Else the server might send its greeting again during the silence.
	polltest.Await(t, "the client acknowledges", func() bool { return nstest.Unacknowledged(t, far) == 0 })
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
