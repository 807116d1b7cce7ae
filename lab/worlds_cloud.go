package lab

import (
	"fmt"
	"net/netip"
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
