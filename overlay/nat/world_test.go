package nat

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"heddle/internal/nstest"
)

// world is client - node - server, where the server knows no way to the client.
type world struct {
	t                    testing.TB
	client, node, server nstest.Namespace
}

var (
	client4, client6 = netip.MustParseAddr("10.9.1.2"), netip.MustParseAddr("fd09:1::2")
	node4, node6     = netip.MustParseAddr("10.9.1.1"), netip.MustParseAddr("fd09:1::1")
	server4, server6 = netip.MustParseAddrPort("10.9.2.2:7000"), netip.MustParseAddrPort("[fd09:2::2]:7000")
)

func newWorld(t testing.TB, forward bool) *world {
	t.Helper()
	w := &world{t: t, client: nstest.New(t), node: nstest.New(t), server: nstest.New(t)}
	nstest.Link(t, nstest.End{In: w.node, Device: "c", Addrs: []string{"10.9.1.1/24", "fd09:1::1/64"}},
		nstest.End{In: w.client, Device: "n", Addrs: []string{"10.9.1.2/24", "fd09:1::2/64"}})
	nstest.Link(t, nstest.End{In: w.node, Device: "s", Addrs: []string{"10.9.2.1/24", "fd09:2::1/64"}},
		nstest.End{In: w.server, Device: "n", Addrs: []string{"10.9.2.2/24", "fd09:2::2/64"}})
	if forward {
		w.node.Do(w.t, func() error {
			return errors.Join(os.WriteFile(forwardIPv4, []byte("1"), 0), os.WriteFile(forwardIPv6, []byte("1"), 0))
		})
	}
	w.server.Do(w.t, func() error {
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

// How long what must come may take, and how long to wait for what must not.
const (
	patience = 30 * time.Second
	inVain   = time.Second
)

// dial connects from the client, and gives the address that the server sees.
func (w *world) dial(from netip.Addr, to netip.AddrPort) (c net.Conn, seen netip.Addr, err error) {
	w.t.Helper()
	return w.dialWithin(patience, from, to)
}

// dialWithin is dial that gives up sooner, or later.
func (w *world) dialWithin(patience time.Duration, from netip.Addr, to netip.AddrPort) (c net.Conn, seen netip.Addr, err error) {
	w.t.Helper()
	w.client.Do(w.t, func() error {
		d := net.Dialer{Timeout: patience, LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0))}
		for end := time.Now().Add(patience); ; { // IPv6 needs a moment to find its neighbours
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
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
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

func route(to, via string) error { return nstest.Route(to, "", netlink.Route{Gw: net.ParseIP(via)}) }
