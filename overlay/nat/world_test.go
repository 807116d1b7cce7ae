package nat

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// world is client - node - server, where the server knows no way to the client.
type world struct {
	t                    testing.TB
	client, node, server netns.NsHandle
}

var (
	client4, client6 = netip.MustParseAddr("10.9.1.2"), netip.MustParseAddr("fd09:1::2")
	node4, node6     = netip.MustParseAddr("10.9.1.1"), netip.MustParseAddr("fd09:1::1")
	server4, server6 = netip.MustParseAddrPort("10.9.2.2:7000"), netip.MustParseAddrPort("[fd09:2::2]:7000")
)

func newWorld(t testing.TB, forward bool) *world {
	t.Helper()
	w := &world{t: t, client: namespace(t), node: namespace(t), server: namespace(t)}
	w.do(w.node, func() error {
		return errors.Join(
			veth("c", "n", w.client, "10.9.1.1/24", "fd09:1::1/64"),
			veth("s", "n", w.server, "10.9.2.1/24", "fd09:2::1/64"))
	})
	w.do(w.client, func() error { return address("n", "10.9.1.2/24", "fd09:1::2/64") })
	w.do(w.server, func() error { return address("n", "10.9.2.2/24", "fd09:2::2/64") })
	if forward {
		w.do(w.node, func() error {
			return errors.Join(os.WriteFile(forwardIPv4, []byte("1"), 0), os.WriteFile(forwardIPv6, []byte("1"), 0))
		})
	}
	w.do(w.server, func() error {
		for _, a := range []netip.AddrPort{server4, server6} {
			l, err := net.Listen("tcp", a.String())
			if err != nil {
				return err
			}
			t.Cleanup(func() { l.Close() })
			go echo(l)
		}
		return nil
	})
	return w
}

// echo tells a client its address, and sends back what it hears.
func echo(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			fmt.Fprintf(c, "%s\n", c.RemoteAddr().(*net.TCPAddr).IP)
			_, _ = io.Copy(c, c)
		}()
	}
}

func namespace(t testing.TB) netns.NsHandle {
	t.Helper()
	type made struct {
		ns  netns.NsHandle
		err error
	}
	done := make(chan made, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		ns, err := netns.New()
		if err == nil {
			err = os.WriteFile("/proc/sys/net/ipv6/conf/default/accept_dad", []byte("0"), 0)
		}
		done <- made{ns, err}
	}()
	m := <-done
	if errors.Is(m.err, unix.EPERM) || errors.Is(m.err, unix.EACCES) {
		t.Skipf("no right to make a network namespace (CAP_SYS_ADMIN): %v", m.err)
	} else if m.err != nil {
		t.Fatal(m.err)
	}
	t.Cleanup(func() { m.ns.Close() })
	return m.ns
}

func veth(name, peer string, to netns.NsHandle, addresses ...string) error {
	link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: peer, PeerNamespace: netlink.NsFd(to)}
	if err := netlink.LinkAdd(link); err != nil {
		return err
	}
	return address(name, addresses...)
}

func address(device string, addresses ...string) error {
	link, err := netlink.LinkByName(device)
	if err != nil {
		return err
	}
	for _, text := range addresses {
		a, err := netlink.ParseAddr(text)
		if err != nil {
			return err
		}
		if a.IP.To4() == nil {
			a.Flags = unix.IFA_F_NODAD
		}
		if err := netlink.AddrAdd(link, a); err != nil {
			return err
		}
	}
	return netlink.LinkSetUp(link)
}

// do runs f on a thread inside a namespace, and fails the test where f fails.
func (w *world) do(ns netns.NsHandle, f func() error) {
	w.t.Helper()
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		err := netns.Set(ns)
		if err == nil {
			err = f()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		w.t.Fatal(err)
	}
}

// dial connects from the client, and gives the address that the server sees.
func (w *world) dial(from netip.Addr, to netip.AddrPort) (c net.Conn, seen netip.Addr, err error) {
	w.t.Helper()
	w.do(w.client, func() error {
		d := net.Dialer{Timeout: 2 * time.Second, LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0))}
		for end := time.Now().Add(3 * time.Second); ; { // IPv6 needs a moment to find its neighbours
			if c, err = d.Dial("tcp", to.String()); err == nil || time.Now().After(end) || !errors.Is(err, unix.EHOSTUNREACH) && !errors.Is(err, unix.EADDRNOTAVAIL) {
				return nil
			}
		}
	})
	if err != nil {
		return nil, netip.Addr{}, err
	}
	w.t.Cleanup(func() { c.Close() })
	var line string
	if err := c.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		w.t.Fatal(err)
	}
	if _, err := fmt.Fscanln(c, &line); err != nil {
		return nil, netip.Addr{}, err
	}
	return c, netip.MustParseAddr(line), nil
}

// answers reports whether what the client sends comes back.
func (w *world) answers(c net.Conn, patience time.Duration) bool {
	w.t.Helper()
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		w.t.Fatal(err)
	}
	if _, err := c.Write([]byte("x")); err != nil {
		return false
	}
	_, err := io.ReadFull(c, make([]byte, 1))
	return err == nil
}

func route(to, via string) error {
	prefix, err := netlink.ParseIPNet(to)
	if err != nil {
		return err
	}
	return netlink.RouteAdd(&netlink.Route{Dst: prefix, Gw: net.ParseIP(via)})
}
