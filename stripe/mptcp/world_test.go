package mptcp

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// world is a client and a server that are joined by two links; the server's addresses stand for the nodes'.
type world struct {
	t              *testing.T
	client, server netns.NsHandle
}

const port = 7000

func serverAddr(n int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 9, byte(n), 1}), port)
}

func newWorld(t *testing.T) *world {
	t.Helper()
	if err := supported(); err != nil {
		t.Skipf("%v", err)
	}
	w := &world{t: t, client: namespace(t), server: namespace(t)}
	for n := 1; n <= 2; n++ {
		w.do(w.server, func() error {
			link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: fmt.Sprintf("s%d", n)}, PeerName: fmt.Sprintf("c%d", n), PeerNamespace: netlink.NsFd(w.client)}
			return errors.Join(netlink.LinkAdd(link), setAddress(link.Name, serverAddr(n).Addr()))
		})
		w.do(w.client, func() error { return setAddress(fmt.Sprintf("c%d", n), netip.AddrFrom4([4]byte{10, 9, byte(n), 2})) })
	}
	return w
}

func namespace(t *testing.T) netns.NsHandle {
	t.Helper()
	type made struct {
		ns  netns.NsHandle
		err error
	}
	done := make(chan made, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		ns, err := netns.New()
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

func setAddress(device string, a netip.Addr) error {
	link, err := netlink.LinkByName(device)
	if err != nil {
		return err
	}
	prefix := &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(24, 32)}
	return errors.Join(netlink.AddrAdd(link, &netlink.Addr{IPNet: prefix}), netlink.LinkSetUp(link))
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

// cut takes a link away, or brings it back.
func (w *world) cut(n int, up bool) {
	w.t.Helper()
	w.do(w.server, func() error {
		link, err := netlink.LinkByName(fmt.Sprintf("s%d", n))
		if err != nil {
			return err
		}
		if up {
			return netlink.LinkSetUp(link)
		}
		return netlink.LinkSetDown(link)
	})
}

// pathManager gives the client's setting.
func (w *world) pathManager() (value string) {
	w.t.Helper()
	w.do(w.client, func() error {
		text, err := os.ReadFile(managerFile)
		value = string(text)
		return err
	})
	return value
}

// routeBy sends what goes to an address by a device.
func routeBy(device string, to netip.Addr) error {
	link, err := netlink.LinkByName(device)
	if err != nil {
		return err
	}
	return netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: &net.IPNet{IP: to.AsSlice(), Mask: net.CIDRMask(32, 32)}, Scope: netlink.SCOPE_LINK})
}

// sent counts what left the client by a device.
func (w *world) sent(device string) (bytes uint64) {
	w.t.Helper()
	w.do(w.client, func() error {
		link, err := netlink.LinkByName(device)
		if err == nil {
			bytes = link.Attrs().Statistics.TxBytes
		}
		return err
	})
	return bytes
}
