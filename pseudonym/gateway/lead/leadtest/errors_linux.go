package leadtest

import (
	"net"
	"sync/atomic"

	"github.com/gopacket/gopacket/layers"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"heddle/internal/nstest"
	"heddle/internal/polltest"
)

// resize sets the MTU of a device.
func resize(name string, bytes int) error {
	link, err := netlink.LinkByName(name)
	if err == nil {
		err = netlink.LinkSetMTU(link, bytes)
	}
	return err
}

const narrow = 1280 // bytes, the least that IPv6 allows

// A network that gets narrower behind the provider's or the gateway's router passes the connection on, and tells the client of no tenant.
func narrowNetwork(w *World) {
	t := w.t
	near, far := w.Moved()
	w.Talk(near, far)
	for name, cut := range map[string]func() error{
		"towards the client": func() error { return w.provider.Run(func() error { return resize("client", narrow) }) },
		"towards the tenant": func() error { return w.Gateway.Run(func() error { return resize("site", narrow) }) },
	} {
		if err := cut(); err != nil {
			t.Fatal(err)
		}
		w.Talk(near, far)
		t.Log(name)
	}
	if w.tap.Drain(); w.errors.Load() == 0 {
		t.Error("the client was told of no narrow network")
	}
	if n := w.resets.Load(); n > 0 {
		t.Errorf("%d resets:\n%s", n, w.log.text())
	}
	w.unnamed()
}

// Whoever sends packets in the client's name learns neither how far away the tenant is, nor that it cannot be reached, nor what its address is.
func errorsShowNoTenant(w *World) {
	t := w.t
	near, far := w.Moved()
	w.Talk(near, far)
	var arrived atomic.Bool
	w.Tenant.Tap(t, func(p nstest.Passed) {
		if tcp, ok := w.parse(p).Layer(layers.LayerTypeTCP).(*layers.TCP); ok && tcp.Seq == forged {
			arrived.Store(true)
		}
	}, "net")
	w.forge(w.Public, layers.TCP{ACK: true}, 2) // it reaches the gateway with 1
	polltest.Await(t, "the tenant gets what the gateway would take itself", arrived.Load)
	to := netlink.Route{Type: unix.RTN_UNREACHABLE, Dst: &net.IPNet{IP: w.Inside.Addr().AsSlice(), Mask: net.CIDRMask(w.Inside.Addr().BitLen(), w.Inside.Addr().BitLen())}}
	w.Gateway.Do(t, func() error { return netlink.RouteAdd(&to) })
	w.forge(w.Public, layers.TCP{ACK: true}, ownTTL)
	w.Gateway.Do(t, func() error { return netlink.RouteDel(&to) })
	w.Talk(near, far)
	w.quiet()
}
