package v6switch

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
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
