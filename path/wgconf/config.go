// Package wgconf reads WireGuard files as wg-quick(8) and wg(8) do.
//
// [Load] reads a file from disk and refuses one that others can read; [Parse] reads bytes. Both are stricter than
// wg-quick where a mistake would change what leaves this machine: unknown and repeated keys are errors.
//
// Do not use it for a server's file, or for a file with several peers: a session is split towards one server.
package wgconf

import (
	"net/netip"
	"slices"
)

// Config is one WireGuard file: this machine's interface, and the one server.
type Config struct {
	Interface Interface
	Peer      Peer
	// Warnings are lines of the file that have no effect here, one sentence each.
	Warnings []string
}

// Interface is the [Interface] section.
type Interface struct {
	PrivateKey Key
	// Addresses are the tunnel's own addresses with their prefix lengths.
	Addresses []netip.Prefix
	// DNS are resolvers to be asked through the tunnel, Search the domains that short names are looked up in.
	DNS    []netip.Addr
	Search []string
	// MTU is in bytes, 0 to have it worked out.
	MTU   int
	Table Table
	// FwMark is the mark of encrypted packets, 0 to have one chosen.
	FwMark uint32
	// ListenPort is the local port that encrypted packets leave from, 0 for any.
	ListenPort uint16
	// Commands to run as the device comes and goes; %i stands for its name.
	PreUp, PostUp, PreDown, PostDown []string
}

// Table is where wg-quick puts routes. The zero value is "auto".
type Table struct {
	// Off means that no route is made.
	Off bool
	// Number is the routing table, 0 for "auto".
	Number uint32
}

// Peer is the [Peer] section: the server.
type Peer struct {
	PublicKey Key
	// PresharedKey is zero where the file has none.
	PresharedKey Key
	AllowedIPs   []netip.Prefix
	// Endpoint is HOST:PORT as the file has it; an IPv6 address is in brackets.
	Endpoint string
	// PersistentKeepalive is in seconds, 0 for none.
	PersistentKeepalive uint16
}

// FullTunnel reports whether the file sends all of IPv4 or all of IPv6 into the tunnel, be it as one /0 or as halves.
func (c *Config) FullTunnel() bool {
	return covers(c.Peer.AllowedIPs, "0.0.0.0/1", "128.0.0.0/1") || covers(c.Peer.AllowedIPs, "::/1", "8000::/1")
}

// covers reports whether each of the blocks lies inside one of the prefixes.
func covers(prefixes []netip.Prefix, blocks ...string) bool {
	for _, text := range blocks {
		block := netip.MustParsePrefix(text)
		if !slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Bits() <= block.Bits() && p.Contains(block.Addr()) }) {
			return false
		}
	}
	return true
}
