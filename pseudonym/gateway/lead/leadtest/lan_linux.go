package leadtest

import (
	"errors"
	"fmt"
	"hash/maphash"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gopacket/gopacket/layers"
	"github.com/vishvananda/netlink"

	"heddle/internal/nstest"
)

// DirectSwitch is one that also leads to tenants which answer past the gateway.
type DirectSwitch interface {
	Switch
	LeadDirect(client, gateway, tenant netip.AddrPort) error
}

// past is what passes the gateway's machine while the tenant answers past it.
type past struct {
	tap     *nstest.Tap
	seed    maphash.Seed
	came    map[uint64]bool // the client's packets, by their hash
	led     atomic.Int64    // of them that left
	changed atomic.Int64    // of them that left otherwise than they came
	carried atomic.Int64    // packets to the client, other than answers to a SYN
}

// NewDirectWorld makes a world of IPv4 or IPv6 in which gateway and tenant are in the network of the provider, whose router leads to the client.
func NewDirectWorld(t *testing.T, k Kind, v6 bool) *World {
	t.Helper()
	w := &World{V6: v6, Client: nstest.New(t), Gateway: nstest.New(t), Tenant: nstest.New(t), t: t, kind: k, provider: nstest.New(t)}
	w.past = &past{seed: maphash.MakeSeed(), came: map[uint64]bool{}}
	// The client, its router, anywhere, and in the provider's network the router, the gateway and the tenant.
	a := []string{"198.51.100.2/24", "198.51.100.1/24", "0.0.0.0/0", "203.0.113.1/24", "203.0.113.2/24", "203.0.113.3/24"}
	if v6 {
		a = []string{"2001:db8:c::2/64", "2001:db8:c::1/64", "::/0", "2001:db8:d::1/64", "2001:db8:d::2/64", "2001:db8:d::3/64"}
	}
	host := func(i int) netip.Addr { return netip.MustParsePrefix(a[i]).Addr() }
	w.At, w.Public, w.Inside = netip.AddrPortFrom(host(0), 50000), netip.AddrPortFrom(host(4), 443), netip.AddrPortFrom(host(5), 443)
	nstest.Link(t, nstest.End{In: w.Client, Device: "net", Addrs: a[:1]}, nstest.End{In: w.provider, Device: "client", Addrs: a[1:2]})
	nstest.LAN(t, nstest.End{In: w.provider, Device: "net", Addrs: a[3:4]}, nstest.End{In: w.Gateway, Device: "net", Addrs: a[4:5]},
		nstest.End{In: w.Tenant, Device: "net", Addrs: a[5:6]})
	by := func(router int) func() error {
		return func() error { return nstest.Route(a[2], "", netlink.Route{Gw: host(router).AsSlice()}) }
	}
	routes := map[bool]string{false: "ipv4/ip_forward", true: "ipv6/conf/all/forwarding"}[v6]
	w.Client.Do(t, by(1))
	w.provider.Do(t, func() error { return nstest.Set(routes, "1") })
	w.Tenant.Do(t, by(3))
	w.Tenant.Do(t, func() error { return Take("net", host(4)) })
	w.Gateway.Do(t, func() (err error) {
		if err = errors.Join(nstest.Set(routes, "1"), by(3)()); err != nil {
			return err
		}
		if w.To, err = k.New(); err != nil {
			return err
		}
		w.gateways, err = net.ListenTCP("tcp", net.TCPAddrFromAddrPort(w.Public))
		return err
	})
	t.Cleanup(func() { w.To.Close(); w.gateways.Close() })
	w.tap = w.Client.Tap(t, w.see, "net")
	w.past.tap = w.Gateway.Tap(t, w.carry, "net")
	return w
}

// Take has the calling thread's namespace take packets of TCP and ICMP to an address that arrive at a device, as the operator of a site does.
func Take(device string, at netip.Addr) error {
	family, icmp := "-4", "icmp"
	if at.Is6() {
		family, icmp = "-6", "ipv6-icmp"
	}
	rule := fmt.Sprintf("rule add iif %s to %v lookup 4444 ipproto ", device, at)
	for _, args := range []string{fmt.Sprintf("route add local %v dev lo table 4444", at), rule + "tcp", rule + icmp} {
		if out, err := exec.Command("ip", append([]string{family}, strings.Fields(args)...)...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %v: %w: %s", args, err, out)
		}
	}
	return nil
}

// carry looks at what passes the gateway's machine.
func (w *World) carry(p nstest.Passed) {
	packet := w.parse(p)
	tcp, ok := packet.Layer(layers.LayerTypeTCP).(*layers.TCP)
	if !ok {
		return
	}
	from, to := netip.Addr{}, netip.Addr{}
	if n := packet.NetworkLayer(); n != nil {
		from, _ = netip.AddrFromSlice(n.NetworkFlow().Src().Raw())
		to, _ = netip.AddrFromSlice(n.NetworkFlow().Dst().Raw())
	}
	switch hash := maphash.Bytes(w.past.seed, p.Bytes); {
	case to == w.At.Addr() && !tcp.SYN:
		w.past.carried.Add(1)
	case from != w.At.Addr():
	case !p.Outgoing:
		w.past.came[hash] = true
	default:
		w.past.led.Add(1)
		if !w.past.came[hash] {
			w.past.changed.Add(1)
		}
	}
}

// passedBy fails if the gateway's machine carried answers, or changed a packet that it led.
func (w *World) passedBy() {
	w.t.Helper()
	w.past.tap.Drain()
	if n := w.past.carried.Load(); n > 0 {
		w.t.Errorf("%d packets to the client passed the gateway's machine", n)
	}
	if n, led := w.past.changed.Load(), w.past.led.Load(); n > 0 || led == 0 {
		w.t.Errorf("%d of %d packets that were led are others than came", n, led)
	}
}
