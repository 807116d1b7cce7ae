package nftswitch

import (
	"net"
	"sync/atomic"
	"testing"

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
func TestNarrowNetwork(t *testing.T) { both(t, narrowNetwork) }

func narrowNetwork(w *world) {
	t := w.t
	near, far := w.moved()
	w.talk(near, far)
	for name, cut := range map[string]func() error{
		"towards the client": func() error { return w.provider.Run(func() error { return resize("client", narrow) }) },
		"towards the tenant": func() error { return w.gateway.Run(func() error { return resize("site", narrow) }) },
	} {
		if err := cut(); err != nil {
			t.Fatal(err)
		}
		w.talk(near, far)
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
func TestErrorsShowNoTenant(t *testing.T) { both(t, errorsShowNoTenant) }

func errorsShowNoTenant(w *world) {
	t := w.t
	near, far := w.moved()
	w.talk(near, far)
	var arrived atomic.Bool
	w.tenant.Tap(t, func(p nstest.Passed) {
		if tcp, ok := w.parse(p).Layer(layers.LayerTypeTCP).(*layers.TCP); ok && tcp.Seq == forged {
			arrived.Store(true)
		}
	}, "net")
	w.forge(w.public, layers.TCP{ACK: true}, 2) // it reaches the gateway with 1
	polltest.Await(t, "the tenant gets what the gateway would take itself", arrived.Load)
	to := netlink.Route{Type: unix.RTN_UNREACHABLE, Dst: &net.IPNet{IP: w.inside.Addr().AsSlice(), Mask: net.CIDRMask(w.inside.Addr().BitLen(), w.inside.Addr().BitLen())}}
	w.gateway.Do(t, func() error { return netlink.RouteAdd(&to) })
	w.forge(w.public, layers.TCP{ACK: true}, ownTTL)
	w.gateway.Do(t, func() error { return netlink.RouteDel(&to) })
	w.talk(near, far)
	w.quiet()
}
