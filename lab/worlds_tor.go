package lab

import (
	"fmt"
	"net/netip"
	"time"
)

// TorAuthorities are the hosts of the directory authorities in [Tor].
var TorAuthorities = []string{"auth1", "auth2", "auth3"}

// Access is a link between a client and a network.
type Access struct {
	RTT      time.Duration // half of it in each direction
	Down, Up int64         // bit/s towards the client and from it; 0 is unlimited
}

// DSL is the link of StegoTorus (section 6) to servers across the United States. The paper also took a round trip of 450 ms.
func DSL(rtt time.Duration) Access { return Access{RTT: rtt, Down: 5_600_000, Up: 700_000} }

// Tor has the hosts of a private Tor network. Package peer starts the programs.
//
//	+--------+    access    +-----+            auth1 198.18.1.2
//	| client |==============| isp |------------auth2 198.18.2.2
//	+--------+              +-----+            auth3 198.18.3.2
//	10.101.1.2     10.101.1.1                  bridge 198.18.4.2
//	                                           web 198.18.5.2
//
// The router isp is where a censor can be. Tor treats none of the servers' addresses as private.
func Tor(name string, access Access) World {
	w := World{Name: name, Client: "client",
		About: fmt.Sprintf("a private Tor network behind a link of %v, %.1f Mbit/s down and %.1f up", access.RTT, float64(access.Down)/1e6, float64(access.Up)/1e6)}
	anywhere := netip.MustParsePrefix("0.0.0.0/0")
	w.Hosts = []HostSpec{
		{Name: "client", Routes: []Route{{To: anywhere, Via: netip.MustParseAddr("10.101.1.1"), Device: "access"}}},
		{Name: "isp", Router: true},
	}
	w.Links = []LinkSpec{{
		Name: "access",
		A:    End{"client", "access", prefixes("10.101.1.2/24")},
		B:    End{"isp", "client", prefixes("10.101.1.1/24")},
		AtoB: Shape{Delay: access.RTT / 2, Rate: access.Up},
		BtoA: Shape{Delay: access.RTT / 2, Rate: access.Down},
	}}
	return w.behindISP(append(TorAuthorities[:len(TorAuthorities):len(TorAuthorities)], "bridge", "web")...)
}

// WithTor adds the authorities of a private Tor network to a world with a router isp, which the client and all targets can reach.
func WithTor(w World) World { return w.behindISP(TorAuthorities...) }

// behindISP adds servers, each on a network of its own at the router isp.
func (w World) behindISP(hosts ...string) World {
	anywhere := netip.MustParsePrefix("0.0.0.0/0")
	for i, host := range hosts {
		network := fmt.Sprintf("198.18.%d.", i+1)
		w.Hosts = append(w.Hosts, HostSpec{Name: host, Routes: []Route{{To: anywhere, Via: netip.MustParseAddr(network + "1"), Device: "isp"}},
			// An exit without a nameserver calls itself broken. Nobody answers at this one.
			Nameservers: []netip.Addr{netip.MustParseAddr("127.0.0.1")}})
		w.Links = append(w.Links, LinkSpec{
			Name: host,
			A:    End{"isp", host, prefixes(network + "1/24")},
			B:    End{host, "isp", prefixes(network + "2/24")},
		})
		w.Names = append(w.Names, NameSpec{host + ".example", netip.MustParseAddr(network + "2")})
	}
	return w
}
