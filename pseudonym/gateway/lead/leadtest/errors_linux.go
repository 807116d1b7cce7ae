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

// A network that gets narrower behind the provider's, the gateway's or the tenant's router passes the connection on, and tells the client of no
// tenant.
func narrowNetwork(w *World) {
	t := w.t
	near, far := w.Moved()
	w.Talk(near, far)
	for _, cut := range []struct {
		in     nstest.Namespace
		device string
		to     nstest.Namespace // by its device "net"
		bytes  int
		told   bool // the client is told
	}{
		{w.provider, "client", w.Client, 1400, false},
		{w.Gateway, "site", w.Router, 1340, true},
		{w.Router, "site", w.Tenant, 1280, true}, // the least that IPv6 allows
	} {
		if cut.in == w.Gateway && w.kind.Prepare != nil { // a bridge says nothing
			continue
		}
		before := w.errors.Load()
		cut.in.Do(t, func() error { return nstest.Resize(cut.device, cut.bytes) })
		cut.to.Do(t, func() error { return nstest.Resize("net", cut.bytes) })
		w.Talk(near, far)
		if w.tap.Drain(); cut.told && w.errors.Load() == before {
			t.Errorf("the client was not told that %d bytes are the most", cut.bytes)
		}
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
	atTenant, atRouter := w.countForged(w.Tenant), w.countForged(w.Router)
	w.forge(w.Public, layers.TCP{ACK: true}, 2) // it reaches the gateway with 1
	polltest.Await(t, "the tenant gets what the gateway would take itself", func() bool { return atTenant.Load() > 0 })
	to := netlink.Route{Type: unix.RTN_UNREACHABLE, Dst: &net.IPNet{IP: w.Inside.Addr().AsSlice(), Mask: net.CIDRMask(w.Inside.Addr().BitLen(), w.Inside.Addr().BitLen())}}
	nop := layers.IPv4Option{OptionType: 1}
	for _, in := range []nstest.Namespace{w.Gateway, w.Router} {
		in.Do(t, func() error { return netlink.RouteAdd(&to) })
		for _, options := range [][]layers.IPv4Option{nil, {nop, nop, nop, nop}} { // an error quotes a header with options too
			before := atRouter.Load()
			w.forge(w.Public, layers.TCP{ACK: true}, ownTTL, options...)
			// A gateway that routes drops what has options. What reaches no router has been dropped when forge returns.
			if in == w.Router && (len(options) == 0 || w.kind.Prepare != nil) {
				polltest.Await(t, "the router gets it", func() bool { return atRouter.Load() > before })
			}
		}
		in.Do(t, func() error { return netlink.RouteDel(&to) })
	}
	w.Talk(near, far)
	w.quiet()
}

// countForged counts the forged packets that reach a machine's device "net".
func (w *World) countForged(at nstest.Namespace) *atomic.Int64 {
	var n atomic.Int64
	at.Tap(w.t, func(p nstest.Passed) {
		if tcp, ok := w.parse(p).Layer(layers.LayerTypeTCP).(*layers.TCP); ok && tcp.Seq == forged {
			n.Add(1)
		}
	}, "net")
	return &n
}
