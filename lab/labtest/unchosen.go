package labtest

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"heddle/lab"
)

// Bystander is the access network of [WithBystander], and the client's device there.
const Bystander = "bystander"

// WithBystander adds an access network to a world of three ways. The client's default route leads there, so that what leaves
// by no path leaves by it.
func WithBystander(w lab.World) lab.World {
	gateway := lab.HostSpec{Name: Bystander + "-gw", Router: true}
	access, back := lab.LinkSpec{Name: Bystander}, lab.LinkSpec{Name: Bystander + "-core"}
	access.A, access.B = lab.End{Host: w.Client, Device: Bystander}, lab.End{Host: gateway.Name, Device: "client"}
	back.A, back.B = lab.End{Host: gateway.Name, Device: "core"}, lab.End{Host: "core", Device: Bystander}
	for _, f := range []struct {
		bits             int
		all              string
		access, backbone string
	}{{24, "0.0.0.0/0", "10.101.9.", "10.100.9."}, {64, "::/0", "2001:db8:101:9::", "2001:db8:100:9::"}} {
		at := func(net, host string) netip.Addr { return netip.MustParseAddr(net + host) }
		in := func(net, host string) netip.Prefix { return netip.PrefixFrom(at(net, host), f.bits) }
		access.A.Addrs, access.B.Addrs = append(access.A.Addrs, in(f.access, "2")), append(access.B.Addrs, in(f.access, "1"))
		back.A.Addrs, back.B.Addrs = append(back.A.Addrs, in(f.backbone, "1")), append(back.B.Addrs, in(f.backbone, "2"))
		route := func(host string, r lab.Route) {
			i := slices.IndexFunc(w.Hosts, func(h lab.HostSpec) bool { return h.Name == host })
			w.Hosts[i].Routes = append(w.Hosts[i].Routes, r)
		}
		everywhere := netip.MustParsePrefix(f.all)
		route(w.Client, lab.Route{To: everywhere, Via: at(f.access, "1"), Device: Bystander, Metric: 50}) // below that of all ways
		route("core", lab.Route{To: in(f.access, "2").Masked(), Via: at(f.backbone, "1"), Device: Bystander})
		gateway.Routes = append(gateway.Routes, lab.Route{To: everywhere, Via: at(f.backbone, "2"), Device: "core"})
	}
	w.Hosts, w.Links = append(w.Hosts, gateway), append(w.Links, access, back)
	return w
}

// Unchosen captures what a host sends by a device that no path uses, given as HOST/DEVICE, until stop. stop fails the test if
// there was a packet other than the machine's own to its neighbours: ICMP errors and TCP resets count.
func Unchosen(t *testing.T, in *lab.Instance, place string) (stop func()) {
	t.Helper()
	stopped := Left(t, in, place)
	return func() {
		t.Helper()
		for what, n := range stopped() {
			t.Errorf("%d packets left by %s, which nobody chose: %s", n, place, what)
		}
	}
}

// Left is like [Unchosen], but stop returns how many packets left, by what they were.
func Left(t *testing.T, in *lab.Instance, place string) (stop func() map[string]int) {
	t.Helper()
	host, _, _ := strings.Cut(place, "/")
	own, stopped := in.Host(host).Addrs(), Watch(t, in, place)
	return func() map[string]int {
		t.Helper()
		counts := map[string]int{}
		for _, p := range stopped()[place] {
			if what := describe(p, own); what != "" {
				counts[what]++
			}
		}
		return counts
	}
}

// describe names an IP packet that leaves a machine with these addresses in words, but none of its own to its neighbours.
func describe(p gopacket.Packet, own []netip.Addr) string {
	if p.NetworkLayer() == nil {
		return ""
	}
	source, destination := p.NetworkLayer().NetworkFlow().Endpoints()
	from, _ := netip.AddrFromSlice(source.Raw())
	to, _ := netip.AddrFromSlice(destination.Raw())
	if to.IsMulticast() || to.IsLinkLocalUnicast() || from.IsLinkLocalUnicast() || slices.Contains(own, to) {
		return ""
	}
	kind := "other"
	switch l := p.TransportLayer().(type) {
	case *layers.TCP:
		kind = fmt.Sprintf("TCP, RST %v", l.RST)
	case *layers.UDP:
		kind = "UDP"
	case nil:
		if icmp, ok := p.Layer(layers.LayerTypeICMPv4).(*layers.ICMPv4); ok {
			kind = fmt.Sprintf("ICMP %s with %d bytes", icmp.TypeCode, len(icmp.Payload))
		} else if icmp, ok := p.Layer(layers.LayerTypeICMPv6).(*layers.ICMPv6); ok {
			kind = fmt.Sprintf("ICMPv6 %s with %d bytes", icmp.TypeCode, len(icmp.Payload))
		}
	}
	return fmt.Sprintf("%s from %v to %v", kind, from, to)
}
