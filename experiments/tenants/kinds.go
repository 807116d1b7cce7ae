package tenants

import (
	"maps"
	"slices"

	"heddle/lab/peer"
)

// What serves a tenant's pseudonyms.
type front int

const (
	bySidecar front = iota
	byNginx         // nginx in place of the sidecar
	byHAProxy       // HAProxy before the sidecar
)

// kind is what a tenant's machine is like.
type kind struct {
	server   string // the site's own, for [peer.StartSite]
	front    front
	settings map[string]string // of the kernel, below /proc/sys/net
	mtu      int               // of the machine's link, 0 for the usual
	route    []string          // more words of the route to clients, for ip(8)
}

// kinds are the tenants by name.
var kinds = map[string]kind{
	"nginx":   {server: "nginx"},
	"apache":  {server: "apache"},
	"node":    {server: "node"},
	"python":  {server: "python"},
	"php":     {server: "php"},
	"go":      {server: peer.GoServer},
	"inplace": {server: "nginx", front: byNginx},
	"haproxy": {server: "nginx", front: byHAProxy},
	// Doctor warns of these settings. An administrator may have good reasons for them.
	"kernel": {server: "nginx", settings: map[string]string{
		"ipv4/tcp_timestamps": "0", "ipv4/tcp_sack": "0", "ipv4/ip_default_ttl": "128", "ipv6/conf/cloud/hop_limit": "128",
		"ipv4/tcp_ecn": "1", "ipv4/tcp_rmem": "4096 65536 1048576", "ipv4/ip_no_pmtu_disc": "1", "ipv4/tcp_congestion_control": "reno",
	}},
	// A machine in a tunnel, whose administrator let connections begin slowly.
	"link": {server: "nginx", mtu: 1400, route: []string{"initcwnd", "4"}},
}

// Names are the tenants.
func Names() []string { return slices.Sorted(maps.Keys(kinds)) }

// Ways to a tenant.
const (
	Direct   = "direct"   // without a gateway: clients know the tenant's own address
	Proxy    = "proxy"    // the gateway relays
	Pass     = "fdpass"   // the gateway passes the connection to a sidecar on its machine, which relays to the tenant's server
	Handoff  = "handoff"  // the gateway hands the connection over
	Handoff6 = "handoff6" // the same, with IPv6
	NFT      = "nft"      // as handoff, where rules of nftables lead the packets
	OVS      = "ovs"      // as handoff, where a bridge of Open vSwitch leads them
	V6       = "v6"       // a switch leads packets by pseudo-addresses
)

// Ways are all ways to a tenant.
func Ways() []string { return []string{Direct, Proxy, Pass, Handoff, Handoff6, NFT, OVS, V6} }

// moves reports whether an agent takes connections of a way over.
func moves(way string) bool { return way == Handoff || way == Handoff6 || way == NFT || way == OVS }
