package path

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"heddle/internal/nstest"
	"heddle/internal/polltest"
)

// Long, so that what a busy machine delays still comes while sockets linger.
func init() { lingerQuiet = 2 * time.Second }

// twoWays is a client with a default route by device a, and a way by device b; a server is behind both.
type twoWays struct {
	client, server nstest.Namespace
	at             netip.Addr
}

func newTwoWays(t *testing.T) *twoWays {
	t.Helper()
	w := &twoWays{nstest.New(t), nstest.New(t), netip.MustParseAddr("198.51.100.1")}
	for device, n := range map[string]string{"a": "1", "b": "2"} {
		nstest.Link(t, nstest.End{In: w.client, Device: device, Addrs: []string{"10.0." + n + ".2/24", "fd0" + n + "::2/64"}},
			nstest.End{In: w.server, Device: device, Addrs: []string{"10.0." + n + ".1/24", "fd0" + n + "::1/64"}})
	}
	w.server.Do(t, func() error { return nstest.Address("lo", w.at.String()+"/32", "2001:db8:51::1/128") })
	for _, n := range []nstest.Namespace{w.client, w.server} {
		n.Do(t, func() error {
			return errors.Join(nstest.Set("ipv4/conf/all/rp_filter", "0"), nstest.Set("ipv4/conf/default/rp_filter", "0"),
				nstest.Set("ipv4/conf/a/rp_filter", "0"), nstest.Set("ipv4/conf/b/rp_filter", "0"))
		})
	}
	w.client.Do(t, func() error {
		return errors.Join(nstest.Route("", "a", netlink.Route{Gw: net.IPv4(10, 0, 1, 1), Priority: 1}),
			nstest.Route("", "b", netlink.Route{Gw: net.IPv4(10, 0, 2, 1), Priority: 2}),
			nstest.Route("::/0", "a", netlink.Route{Gw: net.ParseIP("fd01::1"), Priority: 1}),
			nstest.Route("::/0", "b", netlink.Route{Gw: net.ParseIP("fd02::1"), Priority: 2}))
	})
	return w
}

// watch records where the IPv4 packets come from that reach the server by device a, until the test ends.
func (w *twoWays) watch(t *testing.T) (seen func() []netip.Addr) {
	t.Helper()
	var mu sync.Mutex
	var from []netip.Addr
	w.server.Tap(t, func(p nstest.Passed) {
		if len(p.Bytes) >= 20 && p.Bytes[0]>>4 == 4 {
			mu.Lock()
			from = append(from, netip.AddrFrom4([4]byte(p.Bytes[12:])))
			mu.Unlock()
		}
	}, "a")
	return func() []netip.Addr {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(from)
	}
}

// leak makes the kernel of the client answer for a socket that is gone, and waits until the server saw that by the wrong way:
// what came before it has been seen then, too.
func (w *twoWays) leak(t *testing.T, server *net.UDPConn, seen func() []netip.Addr) {
	t.Helper()
	var gone netip.AddrPort
	w.client.Do(t, func() error {
		s, err := openSocket(t.Context(), binding{local: mustAddrPort("10.0.2.2:0"), device: "b"})
		if err != nil {
			return err
		}
		gone = s.LocalAddr()
		return s.Close()
	})
	before := len(seen())
	if _, err := server.WriteToUDPAddrPort([]byte("late"), gone); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); len(seen()) == before; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the kernel answers for no socket, so this test shows nothing")
		}
	}
}

// What arrives by one way after the end of a flow is answered by no other.
func TestLateDatagramsAreNotAnsweredElsewhere(t *testing.T) {
	w := newTwoWays(t)
	seen := w.watch(t)
	var server *net.UDPConn
	w.server.Do(t, func() (err error) {
		server, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(w.at, 4433)))
		return err
	})
	defer server.Close()
	p, err := New(Spec{Name: "b", Kind: "if", Arg: "b"}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	var own netip.AddrPort
	var open Flow
	w.client.Do(t, func() error {
		f, err := Open(t.Context(), p, netip.AddrPortFrom(w.at, 4433))
		if err != nil {
			return err
		}
		if open, err = Open(t.Context(), p, netip.AddrPortFrom(w.at, 4433)); err != nil {
			return err
		}
		if _, err := f.Send([][]byte{[]byte("hello")}); err != nil {
			return err
		}
		own = f.(*udpFlow).LocalAddr()
		return f.Close()
	})
	for range 20 {
		if _, err := server.WriteToUDPAddrPort([]byte("late"), own); err != nil {
			t.Fatal(err)
		}
	}
	if all := seen(); len(all) > 0 {
		t.Errorf("by the other way came packets from %v", all)
	}
	w.leak(t, server, seen)
	if all := seen(); len(all) != 1 {
		t.Errorf("by the other way came packets from %v; one was expected", all)
	}
	Settle()
	if _, err := open.Send([][]byte{[]byte("late")}); !errors.Is(err, net.ErrClosed) {
		t.Errorf("what was left open: %v", err)
	}
	w.client.Do(t, func() error { // the socket is gone now
		c, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(own))
		if err == nil {
			c.Close()
		}
		return err
	})
}

// The same for a connection that is closed before all was read, which ends it at once.
func TestLateSegmentsAreNotAnsweredElsewhere(t *testing.T) {
	w := newTwoWays(t)
	seen := w.watch(t)
	var listener net.Listener
	var server *net.UDPConn
	w.server.Do(t, func() (err error) {
		if listener, err = net.Listen("tcp4", netip.AddrPortFrom(w.at, 4433).String()); err != nil {
			return err
		}
		server, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(w.at, 4433)))
		return err
	})
	defer server.Close()
	defer listener.Close()
	p, err := New(Spec{Name: "b", Kind: "if", Arg: "b"}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	var own netip.AddrPort
	var other net.Conn
	w.client.Do(t, func() error {
		c, err := Dial(t.Context(), p, At(netip.AddrPortFrom(w.at, 4433)))
		if err != nil {
			return err
		}
		own = c.LocalAddr().(*net.TCPAddr).AddrPort()
		if other, err = listener.Accept(); err != nil {
			return err
		}
		if _, err = other.Write([]byte("read and unread")); err != nil {
			return err
		}
		_, err = c.Read(make([]byte, 1))
		return errors.Join(err, c.Close())
	})
	defer other.Close()
	w.server.Do(t, func() error { return sendSegment(netip.AddrPortFrom(w.at, 4433), own) })
	w.leak(t, server, seen)
	if all := seen(); len(all) != 1 {
		t.Errorf("by the other way came packets from %v; one was expected", all)
	}
	Settle()
	if _, err := other.Read(make([]byte, 1)); err == nil {
		t.Error("the connection goes on")
	}
}

// The peer may close last, after a process that was killed: nothing but the kernel has the connection then.
func TestLateEndIsNotAcknowledgedElsewhere(t *testing.T) {
	w := newTwoWays(t)
	at := netip.MustParseAddrPort("[2001:db8:51::1]:4433")
	var mu sync.Mutex
	left := 0
	tap := w.server.Tap(t, func(p nstest.Passed) {
		if len(p.Bytes) >= 40 && p.Bytes[0]>>4 == 6 && p.Bytes[6] == unix.IPPROTO_TCP && !p.Outgoing {
			mu.Lock()
			left++
			mu.Unlock()
		}
	}, "a")
	var listener net.Listener
	w.server.Do(t, func() (err error) {
		listener, err = net.Listen("tcp6", at.String())
		return err
	})
	defer listener.Close()
	p, err := New(Spec{Name: "b", Kind: "if", Arg: "b"}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	var own uint16
	w.client.Do(t, func() error {
		c, err := Dial(t.Context(), p, At(at))
		if err != nil {
			return err
		}
		forget(c)
		own = c.LocalAddr().(*net.TCPAddr).AddrPort().Port()
		return c.(*stream).TCPConn.Close() // as the end of the process does
	})
	other, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	await := func(in nstest.Namespace, port uint16, want byte) {
		t.Helper()
		polltest.Await(t, fmt.Sprintf("port %d is in state %d", port, want), func() bool {
			var state byte
			in.Do(t, func() (err error) { state, err = nstest.TCPState(port); return err })
			return state == want
		})
	}
	await(w.client, own, unix.BPF_TCP_FIN_WAIT2)
	other.Close()
	listener.Close()
	await(w.server, at.Port(), 0)
	tap.Drain()
	mu.Lock()
	defer mu.Unlock()
	if left > 0 {
		t.Errorf("%d segments left by the other way", left)
	}
}

// sendSegment sends a segment of TCP that belongs to no window.
func sendSegment(from, to netip.AddrPort) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: from.Addr().As4()}); err != nil {
		return err
	}
	const length = 20
	segment := binary.BigEndian.AppendUint16(nil, from.Port())
	segment = binary.BigEndian.AppendUint16(segment, to.Port())
	segment = append(segment, 1, 2, 3, 4, 5, 6, 7, 8, length/4<<4, 0x10, 1, 0, 0, 0, 0, 0) // ACK
	pseudo := append(append(from.Addr().AsSlice(), to.Addr().AsSlice()...), 0, unix.IPPROTO_TCP, 0, length)
	binary.BigEndian.PutUint16(segment[16:], ^checksum(append(pseudo, segment...)))
	return unix.Sendto(fd, segment, 0, &unix.SockaddrInet4{Addr: to.Addr().As4()})
}

// checksum is the sum of RFC 1071.
func checksum(b []byte) uint16 {
	sum := uint32(0)
	for i := 0; i < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return uint16(sum)
}
