// Package backendtest is the world in which backends below the socket are tested. It is for tests only, and needs root.
//
//	       10.77.N.2, fd77:N::2
//	       p1 ------------- r1
//	client p2 ------------- r2 router r0 ------------- s0 server 198.51.100.1, 2001:db8:51::1
//	       p3 ------------- r3
package backendtest

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"heddle/internal/netns"
	"heddle/internal/nstest"
	"heddle/path"
)

// Addresses of the server.
var (
	Server4 = netip.MustParseAddr("198.51.100.1")
	Server6 = netip.MustParseAddr("2001:db8:51::1")
)

// Ways is how many devices the client has, p1 to p3.
const Ways = 3

// World is a client, a router and a server, each in an unnamed network namespace that ends with the test.
type World struct {
	Client, Router, Server nstest.Namespace
}

// Own returns the client's address on way n, from 1, of the server's family.
func Own(n int, server netip.Addr) netip.Addr {
	if server.Is4() {
		return netip.MustParseAddr(fmt.Sprintf("10.77.%d.2", n))
	}
	return netip.MustParseAddr(fmt.Sprintf("fd77:%d::2", n))
}

// Via returns the paths over all ways, of kind if.
func Via() (all []path.Spec) {
	for n := range Ways {
		all = append(all, path.Spec{Name: fmt.Sprintf("w%d", n+1), Kind: "if", Arg: fmt.Sprintf("p%d", n+1)})
	}
	return all
}

// New creates the namespaces. It skips the test if this process may not create them.
func New(t *testing.T) *World {
	t.Helper()
	w := &World{nstest.New(t), nstest.New(t), nstest.New(t)}
	w.Client.Do(t, func() error { // as with IPv4: see SetUp
		return errors.Join(nstest.Set("ipv6/conf/all/keep_addr_on_down", "1"), nstest.Set("ipv6/conf/default/keep_addr_on_down", "1"))
	})
	for n := 1; n <= Ways; n++ {
		nstest.Link(t, nstest.End{In: w.Client, Device: fmt.Sprintf("p%d", n), Addrs: []string{fmt.Sprintf("10.77.%d.2/24", n), fmt.Sprintf("fd77:%d::2/64", n)}},
			nstest.End{In: w.Router, Device: fmt.Sprintf("r%d", n), Addrs: []string{fmt.Sprintf("10.77.%d.1/24", n), fmt.Sprintf("fd77:%d::1/64", n)}})
		w.Client.Do(t, func() error { return w.defaults(n) })
	}
	nstest.Link(t, nstest.End{In: w.Router, Device: "r0", Addrs: []string{"198.51.100.254/24", "2001:db8:51::fe/64"}},
		nstest.End{In: w.Server, Device: "s0", Addrs: []string{"198.51.100.1/24", "2001:db8:51::1/64"}})
	w.Router.Do(t, func() error {
		// Compute checksums in software, so that the server sees complete ones.
		return errors.Join(nstest.Set("ipv4/ip_forward", "1"), nstest.Set("ipv6/conf/all/forwarding", "1"), netns.ChecksumsInSoftware("r0"))
	})
	w.Server.Do(t, func() error {
		return errors.Join(netns.ChecksumsInSoftware("s0"),
			netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP("198.51.100.254")}),
			netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP("2001:db8:51::fe")}))
	})
	return w
}

// defaults restores the default routes of way n, which the kernel removes when a device goes down.
func (w *World) defaults(n int) error {
	link, err := netlink.LinkByName(fmt.Sprintf("p%d", n))
	if err != nil {
		return err
	}
	for _, gateway := range []string{fmt.Sprintf("10.77.%d.1", n), fmt.Sprintf("fd77:%d::1", n)} {
		r := &netlink.Route{LinkIndex: link.Attrs().Index, Gw: net.ParseIP(gateway), Priority: 100 * n}
		if err := netlink.RouteReplace(r); err != nil {
			return err
		}
	}
	return nil
}

// SetUp switches way n of the client on or off.
func (w *World) SetUp(t *testing.T, n int, up bool) {
	t.Helper()
	device := fmt.Sprintf("p%d", n)
	w.Client.Do(t, func() error { return nstest.SetUp(device, up) })
	if !up {
		return
	}
	w.Router.Do(t, func() error { return nstest.AwaitCarrier(fmt.Sprintf("r%d", n)) })
	w.Client.Do(t, func() error { return errors.Join(nstest.AwaitCarrier(device), w.defaults(n)) })
}

// Mute makes the router take what comes by way n and answer nothing there, or ends that. It is for IPv4.
func (w *World) Mute(t *testing.T, n int, mute bool) {
	t.Helper()
	change := netlink.RouteDel
	if mute {
		change = netlink.RouteAdd
	}
	w.Router.Do(t, func() error {
		return change(&netlink.Route{Dst: &net.IPNet{IP: Own(n, Server4).AsSlice(), Mask: net.CIDRMask(32, 32)}, Type: unix.RTN_BLACKHOLE})
	})
}
