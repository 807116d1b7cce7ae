package answers

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"heddle/internal/nft"
	"heddle/internal/nstest"
	"heddle/internal/polltest"
)

// world is a client whose default route is by device a, and which has device b too. A server is behind both.
type world struct {
	t              *testing.T
	client, server nstest.Namespace
	tap            *nstest.Tap
	mu             sync.Mutex
	seen           []answer // by a
}

// answer is what a server got from the client.
type answer struct {
	Protocol byte
	Server   netip.Addr
}

// The servers are the addresses of one machine, by whether they are of IPv6. The client guards the first ones.
var (
	servers = map[bool]netip.Addr{false: netip.MustParseAddr("198.51.100.1"), true: netip.MustParseAddr("2001:db8:51::1")}
	others  = map[bool]netip.Addr{false: netip.MustParseAddr("198.51.100.2"), true: netip.MustParseAddr("2001:db8:51::2")}
)

func addressOf(device int, v6 bool) netip.Addr {
	if v6 {
		return netip.MustParseAddr(fmt.Sprintf("fd0%d::2", device))
	}
	return netip.MustParseAddr(fmt.Sprintf("10.0.%d.2", device))
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, client: nstest.New(t), server: nstest.New(t)}
	for n, device := range []string{"a", "b"} {
		ends := func(host int) []string {
			return []string{fmt.Sprintf("10.0.%d.%d/24", n+1, host), fmt.Sprintf("fd0%d::%d/64", n+1, host)}
		}
		nstest.Link(t, nstest.End{In: w.client, Device: device, Addrs: ends(2)}, nstest.End{In: w.server, Device: device, Addrs: ends(1)})
	}
	w.server.Do(t, func() error {
		return nstest.Address("lo", "198.51.100.1/32", "198.51.100.2/32", "2001:db8:51::1/128", "2001:db8:51::2/128")
	})
	for _, in := range []nstest.Namespace{w.client, w.server} {
		for _, device := range []string{"all", "default", "a", "b"} {
			in.Do(t, func() error { return nstest.Set("ipv4/conf/"+device+"/rp_filter", "0") })
		}
	}
	w.client.Do(t, func() error {
		a, err := netlink.LinkByName("a")
		if err != nil {
			return err
		}
		return errors.Join(netlink.RouteAdd(&netlink.Route{LinkIndex: a.Attrs().Index, Gw: net.ParseIP("10.0.1.1")}),
			netlink.RouteAdd(&netlink.Route{LinkIndex: a.Attrs().Index, Gw: net.ParseIP("fd01::1")}))
	})
	w.watch()
	return w
}

// watch records the answers that come to the server by a, until the test ends.
func (w *world) watch() {
	w.t.Helper()
	w.tap = w.server.Tap(w.t, func(p nstest.Passed) {
		if got, ok := parse(p.Bytes); ok && !p.Outgoing {
			w.mu.Lock()
			w.seen = append(w.seen, got)
			w.mu.Unlock()
		}
	}, "a")
}

func parse(b []byte) (answer, bool) {
	var protocol byte
	var to netip.Addr
	switch {
	case b[0]>>4 == 4 && len(b) >= 20:
		protocol, to = b[9], netip.AddrFrom4([4]byte(b[16:]))
	case b[0]>>4 == 6 && len(b) >= 40:
		protocol, to = b[6], netip.AddrFrom16([16]byte(b[24:]))
	default: // ARP
		return answer{}, false
	}
	return answer{protocol, to}, to == servers[to.Is6()] || to == others[to.Is6()]
}

func (w *world) saw(a answer) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Contains(w.seen, a)
}

// forget forgets what came to the server until now.
func (w *world) forget() {
	w.t.Helper()
	w.tap.Drain()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = nil
}

// send sends a datagram from a server to a port where nothing listens.
func (w *world) send(from, to netip.Addr) {
	w.t.Helper()
	w.server.Do(w.t, func() error {
		c, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(from, 0)), net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, 9)))
		if err != nil {
			return err
		}
		_, err = c.Write(make([]byte, 100))
		return errors.Join(err, c.Close())
	})
}

// connect connects from a server to a port where nothing listens, and reports whether it was refused.
func (w *world) connect(from, to netip.Addr) (refused bool) {
	w.t.Helper()
	w.server.Do(w.t, func() error {
		d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0)), Timeout: time.Second}
		c, err := d.Dial("tcp", netip.AddrPortFrom(to, 9).String())
		if err == nil {
			return errors.Join(errors.New("something listens"), c.Close())
		}
		refused = errors.Is(err, syscall.ECONNREFUSED)
		return nil
	})
	return refused
}

// await waits until the client answered by a; send asks for it, again and again since the kernel limits its errors.
func (w *world) await(a answer, send func()) {
	w.t.Helper()
	polltest.Await(w.t, fmt.Sprintf("the client answers: %+v", a), func() bool {
		send()
		return w.saw(a)
	})
}

func TestAnswersStayHome(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		t.Run(fmt.Sprint("IPv6 ", v6), func(t *testing.T) {
			w := newWorld(t)
			server, other, to := servers[v6], others[v6], addressOf(2, v6)
			icmp := byte(unix.IPPROTO_ICMP)
			if v6 {
				icmp = unix.IPPROTO_ICMPV6
			}
			w.await(answer{icmp, server}, func() { w.send(server, to) })
			polltest.Await(t, "the last answer to a connection comes", func() bool { return w.connect(server, to) })
			w.await(answer{unix.IPPROTO_TCP, server}, func() {})
			w.client.Do(t, func() error { return Guard(server) })
			// Answers of before may be on the way yet, in front of this one.
			w.await(answer{icmp, other}, func() { w.send(other, to) })
			w.forget()
			w.connect(server, to)
			for range 10 {
				w.send(server, to)
			}
			// Another server is answered, after what came before.
			w.await(answer{icmp, other}, func() { w.send(other, to) })
			w.await(answer{unix.IPPROTO_TCP, other}, func() { w.connect(other, to) })
			w.tap.Drain()
			if w.saw(answer{icmp, server}) || w.saw(answer{unix.IPPROTO_TCP, server}) {
				t.Errorf("by the main route left %v", w.seen)
			}
			polltest.Await(t, "a reset with the device's own address leaves", func() bool { return w.connect(server, addressOf(1, v6)) })
		})
	}
}

// dial connects from the client's address on b to a server, bound to b or not, and returns both ends.
func (w *world) dial(to netip.Addr, bound bool) (client, server net.Conn) {
	w.t.Helper()
	var listener net.Listener
	w.server.Do(w.t, func() (err error) {
		listener, err = net.Listen("tcp", netip.AddrPortFrom(to, 0).String())
		return err
	})
	defer listener.Close()
	d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(addressOf(2, to.Is6()), 0))}
	if bound {
		d.Control = func(_, _ string, raw syscall.RawConn) (err error) {
			controlErr := raw.Control(func(fd uintptr) { err = unix.BindToDevice(int(fd), "b") })
			return errors.Join(err, controlErr)
		}
	}
	w.client.Do(w.t, func() (err error) {
		client, err = d.Dial("tcp", listener.Addr().String())
		return err
	})
	server, err := listener.Accept()
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { client.Close(); server.Close() })
	return client, server
}

// finish lets the client close its connection by b first, and the server once the kernel of the client has no more than
// TIME_WAIT's record of it.
func (w *world) finish(server netip.Addr) {
	w.t.Helper()
	ours, theirs := w.dial(server, true)
	ours.Close()
	if _, err := theirs.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		w.t.Fatal(err)
	}
	port := netip.MustParseAddrPort(ours.LocalAddr().String()).Port()
	polltest.Await(w.t, "the client has closed", func() bool {
		var state byte
		w.client.Do(w.t, func() (err error) { state, err = nstest.TCPState(port); return err })
		return state == unix.BPF_TCP_FIN_WAIT2
	})
	theirs.Close()
}

// With IPv6 the kernel takes the main route for what it sends in TIME_WAIT.
func TestLateAcknowledgementsStayHome(t *testing.T) {
	w := newWorld(t)
	w.client.Do(t, func() error {
		return nstest.Route("::/0", "b", netlink.Route{Gw: net.ParseIP("fd02::1"), Priority: 2000})
	})
	server, other := servers[true], others[true]
	w.client.Do(t, func() error { return Guard(server) })
	w.finish(server)
	w.finish(other)
	polltest.Await(t, "the kernel acknowledges by the main route", func() bool { return w.saw(answer{unix.IPPROTO_TCP, other}) })
	if w.saw(answer{unix.IPPROTO_TCP, server}) {
		t.Errorf("by the main route left %v", w.seen)
	}

	// A program may send so.
	ours, theirs := w.dial(server, false)
	for range 2 {
		if _, err := theirs.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(ours, make([]byte, 5)); err != nil {
			t.Fatal(err)
		}
	}
	polltest.Await(t, "the program's acknowledgements arrive", func() bool { return nstest.Unacknowledged(t, theirs) == 0 })
}

func TestEntriesAreRenewedAndRemoved(t *testing.T) {
	nstest.New(t).Enter(t)
	if err := RemoveEmpty(); err != nil {
		t.Error("without a table:", err)
	}
	expires := func() time.Duration {
		t.Helper()
		conn, err := nft.Connect()
		if err != nil {
			t.Fatal(err)
		}
		all, err := conn.GetSetElements(families[0].servers())
		if err != nil || len(all) != 1 || all[0].Timeout != Lasting {
			t.Fatalf("entries %+v, %v", all, err)
		}
		return all[0].Expires
	}
	guard := func() {
		t.Helper()
		if err := Guard(servers[false]); err != nil {
			t.Fatal(err)
		}
	}
	guard()
	before := expires()
	for before > Lasting-2*time.Second {
		time.Sleep(10 * time.Millisecond)
		before = expires()
	}
	if guard(); expires() < before {
		t.Errorf("an entry ends in %v, renewed in %v", before, expires())
	}
	if all, err := Entries(); err != nil || len(all) != 1 || all[0].Server != servers[false] || all[0].Left <= 0 || all[0].Left > Lasting {
		t.Errorf("listed are %v, %v", all, err)
	}
	if err := errors.Join(RemoveEmpty(), Guard(servers[false])); err != nil || expires() == 0 {
		t.Error("with an entry:", err)
	}
	if err := nft.Change(func(conn *nftables.Conn) error { conn.FlushSet(families[0].servers()); return nil }); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := RemoveEmpty(); err != nil {
			t.Error(err)
		}
	}
	conn, err := nft.Connect()
	if err != nil {
		t.Fatal(err)
	}
	if tables, err := conn.ListTables(); err != nil || len(tables) != 0 {
		t.Errorf("tables %v, %v", tables, err)
	}
}
