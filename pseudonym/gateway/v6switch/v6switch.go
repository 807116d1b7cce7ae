// Package v6switch leads packets to pseudo-addresses to their tenants, by a BPF program where clients' packets arrive. It needs CAP_BPF and
// CAP_NET_ADMIN on Linux 5.10 or later.
//
// The program decrypts the interface identifier of the destination (package address), which names the tenant, and sends the packet to the
// tenant's next hop. It changes nothing in it but the hop limit, and keeps no state of connections. The tenant takes the
// whole prefix for local addresses (AnyIP), and answers the client directly. Packets of IPv4 and to other addresses pass as before.
//
// Tenants get TCP to the gateway's ports, and ICMPv6 errors, so that path MTU discovery works (RFC 8201). All other packets to the prefix are
// dropped without an answer: those whose address opens with no key, fragments, extension headers, other protocols and ports. A tenant
// would answer some of them from its own address, or show servers that others know.
package v6switch

import "net/netip"

// Own stands for the address of the switch's own machine, where the gateway is.
var Own = netip.IPv6Unspecified()

// MostPorts is how many ports a switch leads.
const MostPorts = 8

// Options configure a switch.
type Options struct {
	Device string       // where clients' packets arrive, an Ethernet device
	Prefix netip.Prefix // of pseudo-addresses, a /64 that is routed to this machine
	Ports  []uint16     // of TCP
}

// Counts tell what a switch did with packets to the prefix, since it was opened.
type Counts struct {
	Led         uint64 `json:"led"`         // to tenants
	Own         uint64 `json:"own"`         // to the gateway of this machine
	Unknown     uint64 `json:"unknown"`     // no key opens the address, or no tenant has the number
	Refused     uint64 `json:"refused"`     // neither TCP to a port of the gateway's nor an ICMPv6 error, or of a source that is none
	Unreachable uint64 `json:"unreachable"` // this machine has no route to the tenant
}
