package lab

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
)

// CloudGateway is the public address of the host cloud in [Cloud].
var CloudGateway = netip.MustParseAddr("192.0.2.1")

// Cloud has a client, its network, and a cloud that hosts sites on networks of their own:
//
//	+--------+            +-----+                +-------+            +-------+
//	| client |------------| isp |----------------| cloud |------------| sites |
//	+--------+            +-----+                +-------+            +-------+
//	10.1.0.2        10.1.0.1  192.0.2.254   192.0.2.1  10.9.N.1      10.9.N.2
//
// No link has a limit. The router isp is where an observer can be. Nobody outside of the cloud can reach the sites.
func Cloud(name string, sites ...string) World {
	anywhere := netip.MustParsePrefix("0.0.0.0/0")
	w := World{Name: name, Client: "client", About: fmt.Sprintf("a client, its network, and a cloud with %d sites", len(sites)),
		Hosts: []HostSpec{
			{Name: "client", Nameservers: []netip.Addr{CloudGateway}, Routes: []Route{{To: anywhere, Via: netip.MustParseAddr("10.1.0.1"), Device: "net"}}},
			{Name: "isp", Router: true},
			{Name: "cloud", Routes: []Route{{To: anywhere, Via: netip.MustParseAddr("192.0.2.254"), Device: "isp"}}},
		},
		Links: []LinkSpec{
			{Name: "client", A: End{"client", "net", prefixes("10.1.0.2/24")}, B: End{"isp", "client", prefixes("10.1.0.1/24")}},
			{Name: "cloud", A: End{"isp", "cloud", prefixes("192.0.2.254/24")}, B: End{"cloud", "isp", prefixes(CloudGateway.String() + "/24")}},
		}}
	for i, site := range sites {
		network := fmt.Sprintf("10.9.%d.", i+1)
		w.Hosts = append(w.Hosts, HostSpec{Name: site})
		w.Links = append(w.Links, LinkSpec{Name: site, A: End{"cloud", site, prefixes(network + "1/24")}, B: End{site, "cloud", prefixes(network + "2/24")}})
	}
	return w
}

// OpenCloud is [Cloud] where the client can also reach each site by its own address, as it does without pseudonyms.
func OpenCloud(name string, sites ...string) World {
	w := Cloud(name, sites...)
	for i := range w.Hosts {
		switch h := &w.Hosts[i]; h.Name {
		case "client":
		case "isp":
			h.Routes = append(h.Routes, Route{To: netip.MustParsePrefix("10.9.0.0/16"), Via: CloudGateway, Device: "cloud"})
		case "cloud":
			h.Router = true
		default:
			near := w.addrsOf(h.Name)[0].Prev()
			h.Routes = []Route{{To: netip.MustParsePrefix("0.0.0.0/0"), Via: near, Device: "cloud"}}
		}
	}
	return w
}

// BridgedCloud is [OpenCloud] for a host cloud that joins all networks by [Host.Bridge]. The isp is in the networks of the sites, so that client and site
// reach each other past the host cloud:
//
//	+--------+            +-----+    +--------+    +-------+
//	| client |------------| isp |----| bridge |----| sites |
//	+--------+            +-----+    +--------+    +-------+
//	10.1.0.2     10.1.0.1  192.0.2.254   |  192.0.2.1  10.9.N.2
//	                       10.9.N.254  cloud  10.9.N.1
func BridgedCloud(name string, sites ...string) World {
	w := OpenCloud(name, sites...)
	for i := range sites {
		near := netip.MustParsePrefix(fmt.Sprintf("10.9.%d.254/24", i+1))
		isp, site := &w.Links[1].A, &w.Hosts[len(w.Hosts)-len(sites)+i]
		isp.Addrs = append(isp.Addrs, near)
		site.Routes[0].Via = near.Addr()
	}
	return w
}

// DirectSite is the address that the site of [PastCloud] has in the network of the isp.
var DirectSite = netip.MustParseAddr("10.8.0.2")

// PastCloud gives the last site of a world of [OpenCloud] a link of its own to the isp:
//
//	+--------+            +-----+                +-------+              +------+
//	| client |------------| isp |----------------| cloud |--------------| site |
//	+--------+            +-----+                +-------+              +------+
//	                         | 10.8.0.1                           10.8.0.2 |
//	                         +---------------------------------------------+
//
// After [Host.AnswerPast] it answers from an address of the cloud by that one.
func PastCloud(w World) World {
	site := w.Hosts[len(w.Hosts)-1].Name
	w.Links = append(w.Links, LinkSpec{Name: "past", A: End{"isp", "past", prefixes("10.8.0.1/24")}, B: End{site, "past", prefixes(DirectSite.String() + "/24")}})
	return w
}

// AnswerPast has the site of [PastCloud] take packets of TCP and ICMP to an address of the host cloud, and lead what comes from it to the isp.
func (h *Host) AnswerPast(ctx context.Context, address netip.Addr) error {
	const takes, leads = "4444", "4445" // tables
	for _, args := range []string{
		"route add local %v dev lo table " + takes, "rule add iif cloud to %v ipproto tcp lookup " + takes, "rule add iif cloud to %v ipproto icmp lookup " + takes,
		"route add default via 10.8.0.1 table " + leads, "rule add from %v lookup " + leads,
	} {
		if strings.Contains(args, "%v") {
			args = fmt.Sprintf(args, address)
		}
		if out, err := h.Command(ctx, "ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			return fmt.Errorf("host %s: ip %s: %w: %s", h.spec.Name, args, err, out)
		}
	}
	return nil
}

// CloudPrefix has the pseudo-addresses of a cloud of [WithIPv6].
var CloudPrefix = netip.MustParsePrefix("2001:db8:77:1::/64")

// CloudGateway6 is the address of IPv6 of the host cloud.
var CloudGateway6 = netip.MustParseAddr("2001:db8:b::1")

// CloudSite6 is the address of IPv6 of the Nth site, from 1 on.
func CloudSite6(n int) netip.Addr { return netip.MustParseAddr(fmt.Sprintf("fd09:%x::2", n)) }

// WithIPv6 gives a world of [OpenCloud] addresses of IPv6 too. The isp routes pseudo-addresses to the cloud:
//
//	+--------+                 +-----+                    +-------+              +-------+
//	| client |-----------------| isp |--------------------| cloud |--------------| sites |
//	+--------+                 +-----+                    +-------+              +-------+
//	2001:db8:c::2   2001:db8:c::1   2001:db8:b::2   2001:db8:b::1   fd09:N::1   fd09:N::2
func WithIPv6(w World) World {
	anywhere := netip.MustParsePrefix("::/0")
	isp, cloud := netip.MustParseAddr("2001:db8:c::1"), CloudGateway6
	near := map[string]netip.Addr{"client": isp, "cloud": cloud.Next()} // where the default route of a host leads
	sites := 0
	for i := range w.Links {
		l := &w.Links[i]
		first, second := isp.Next(), isp
		switch l.Name {
		case "client":
		case "cloud":
			first, second = cloud.Next(), cloud
		default:
			sites++
			second = CloudSite6(sites)
			first = second.Prev()
			near[l.Name] = first
		}
		l.A.Addrs, l.B.Addrs = append(l.A.Addrs, netip.PrefixFrom(first, 64)), append(l.B.Addrs, netip.PrefixFrom(second, 64))
	}
	for i := range w.Hosts {
		h := &w.Hosts[i]
		if h.Name == "isp" {
			h.Routes = append(h.Routes, Route{To: CloudPrefix, Via: cloud, Device: "cloud"})
			continue
		}
		h.Routes = append(h.Routes, Route{To: anywhere, Via: near[h.Name], Device: h.Routes[0].Device})
	}
	return w
}
