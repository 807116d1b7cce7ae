// Package wgconf parses WireGuard files like wg-quick(8) and wg(8). [Load] reads a file, and refuses one that others can
// read; [Parse] reads bytes. Both refuse unknown and repeated keys, since such mistakes can change what leaves this machine.
//
// Do not use it for a server's file, or for a file with several peers: a session is split towards one server.
package wgconf

import (
	"net/netip"
	"slices"
)

// Config is one WireGuard file, with this machine's interface and one server.
type Config struct {
	Interface Interface
	Peer      Peer
	// Warnings are about lines without effect here, one sentence each.
	Warnings []string
}

// Interface is the [Interface] section.
type Interface struct {
	PrivateKey Key
	Addresses  []netip.Prefix // own addresses inside the tunnel, with prefix lengths
	// DNS are the resolvers to ask through the tunnel, Search the domains for short names.
	DNS        []netip.Addr
	Search     []string
	MTU        int // in bytes; 0 means computed
	Table      Table
	FwMark     uint32 // mark of encrypted packets; 0 means chosen by Heddle
	ListenPort uint16 // local port of encrypted packets; 0 means any
	// Commands to run when the device comes up and goes down; %i is its name.
	PreUp, PostUp, PreDown, PostDown []string
}

// Table is the Table key: where wg-quick puts routes. The zero value is "auto".
type Table struct {
	Off    bool   // no routes
	Number uint32 // routing table; 0 means "auto"
}

// Peer is the [Peer] section: the server.
type Peer struct {
	PublicKey           Key
	PresharedKey        Key // zero if the file has none
	AllowedIPs          []netip.Prefix
	Endpoint            string // HOST:PORT as in the file; IPv6 in brackets
	PersistentKeepalive uint16 // in seconds; 0 means none
}

// FullTunnel reports whether all of IPv4 or all of IPv6 goes into the tunnel, as one /0 or as two halves.
func (c *Config) FullTunnel() bool {
	return covers(c.Peer.AllowedIPs, "0.0.0.0/1", "128.0.0.0/1") || covers(c.Peer.AllowedIPs, "::/1", "8000::/1")
}

// covers reports whether each block lies inside one of the prefixes.
func covers(prefixes []netip.Prefix, blocks ...string) bool {
	for _, text := range blocks {
		block := netip.MustParsePrefix(text)
		if !slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Bits() <= block.Bits() && p.Contains(block.Addr()) }) {
			return false
		}
	}
	return true
}
