package ovsswitch

import (
	"net"
	"net/netip"
	"slices"
	"time"

	"heddle/internal/openflow"
	"heddle/pseudonym/gateway/lead"
)

// A cookie has the prefix, a number and a role. All flows of a connection have the same number.
const (
	prefix     = 0x6864 << 48
	prefixMask = 0xffff << 48
	roleMask   = 0xf
	firstOf    = 4 // bits of a number's position
)

// role is what a flow is for.
type role uint64

const (
	roleTo     role = 1 + iota // leads the client's packets
	roleBack                   // leads the tenant's
	roleSYN                    // hands over the first packet of a new connection
	roleReset                  // leads resets, and hands copies over
	roleEnded                  // drops what the tenant may still send
	roleClient                 // hands over ICMP to a client
	rolePublic                 // hands over ICMP to an address of the gateway
	roleTenant                 // keeps apart what the bridge's cache knows of a tenant's connections
	roleTouch                  // lets Open vSwitch look at its cache
)

func cookie(number uint64, r role) uint64 { return prefix | number<<firstOf | uint64(r) }

// split takes a cookie apart.
func split(cookie uint64) (number uint64, r role) {
	return cookie &^ prefixMask >> firstOf, role(cookie & roleMask)
}

// ofConnection are the roles of a connection's flows.
var ofConnection = []role{roleTo, roleBack, roleReset, roleSYN}

// remove deletes the flows with a number and one of the roles. Each deletion names a whole cookie: Open vSwitch has an index of cookies, and would look at all
// its flows for a part of one.
func remove(number uint64, roles ...role) (changes []openflow.Change) {
	for _, r := range roles {
		changes = append(changes, openflow.Delete(cookie(number, r), ^uint64(0)))
	}
	return changes
}

// Priorities are above those that people's own flows usually have.
const (
	priorityTenant = 40000 + iota
	priorityLead
	priorityReset
	prioritySYN
	priorityICMP
)

// Flags of TCP (RFC 9293).
const (
	syn = 2
	rst = 4
	ack = 16
)

const (
	protocolTCP    = 6
	protocolICMP   = 1
	protocolICMPv6 = 58
)

var normal = openflow.Output(openflow.Normal, 0)

// handOver hands the packet to this process.
var handOver = []openflow.Action{openflow.Output(openflow.Controller, 0xffff)}

// ip matches packets of a protocol, of the family of an address.
func ip(of netip.Addr, protocol uint8) openflow.Match {
	family := uint16(0x0800)
	if of.Is6() {
		family = 0x86dd
	}
	return openflow.Match{openflow.U16(openflow.EthType, family), openflow.U8(openflow.IPProto, protocol)}
}

// tcp matches packets of a connection, in one direction.
func tcp(from, to netip.AddrPort, more ...openflow.Field) openflow.Match {
	return append(append(ip(from.Addr(), protocolTCP), openflow.Source(from.Addr()), openflow.Target(to.Addr()),
		openflow.U16(openflow.TCPSrc, from.Port()), openflow.U16(openflow.TCPDst, to.Port())), more...)
}

// connection is one that moved.
type connection struct {
	client, gateway, tenant netip.AddrPort
	toTenant, toClient      hop // that packets of this machine would take

	// They change under the mutex of the switch:
	number  uint64
	broken  bool      // the tenant sent a reset
	asked   *question // to the tenant
	ending  bool      // its flows are being removed
	packets uint64    // of both ways, when [Switch.Each] last looked
	last    time.Time // when it was added, or touched, or Each first saw its last packet
}

func (c *connection) key() key { return key{c.client, c.gateway} }

// key is a connection by what the client knows.
type key struct{ client, gateway netip.AddrPort }

// flows returns all flows of a connection, given the Ethernet addresses of its hops and the TTL of this machine's own packets. This process gets a
// copy of each reset.
func (c *connection) flows(mac func(hop) net.HardwareAddr, ttl uint8) []openflow.Flow {
	own, reset := openflow.SetTTL(ttl), openflow.Flags(rst, rst)
	to := []openflow.Action{openflow.Set(openflow.MAC(openflow.EthDst, mac(c.toTenant))), openflow.Set(openflow.Target(c.tenant.Addr())), own, normal}
	back := []openflow.Action{openflow.Set(openflow.MAC(openflow.EthDst, mac(c.toClient))), openflow.Set(openflow.Source(c.gateway.Addr())), own, normal}
	silent, idle := silentFor, lead.Idle
	if c.broken {
		silent, idle = lead.EndedFor, lead.EndedFor
	}
	return []openflow.Flow{
		{Cookie: cookie(c.number, roleTo), Priority: priorityLead, Match: tcp(c.client, c.gateway), Idle: silent, Report: true, Actions: to},
		{Cookie: cookie(c.number, roleBack), Priority: priorityLead, Match: tcp(c.tenant, c.client), Idle: idle, Report: true, Actions: slices.Insert(slices.Clone(back), 0, openflow.FinTimeout(lead.EndedFor))},
		{Cookie: cookie(c.number, roleReset), Priority: priorityReset, Match: tcp(c.client, c.gateway, reset), Actions: slices.Concat(handOver, to)},
		{Cookie: cookie(c.number, roleReset), Priority: priorityReset, Match: tcp(c.tenant, c.client, reset), Actions: slices.Concat(handOver, back)},
		{Cookie: cookie(c.number, roleSYN), Priority: prioritySYN, Match: tcp(c.client, c.gateway, openflow.Flags(syn, syn|ack)), Actions: handOver},
		{Cookie: cookie(c.number, roleSYN), Priority: prioritySYN, Match: tcp(c.client, c.tenant, openflow.Flags(syn, syn|ack)), Actions: handOver},
	}
}

// ended returns the flow that takes the place of the one that led the tenant's packets: none is to leave with the tenant's address.
func (c *connection) ended(number uint64) openflow.Flow {
	const stray = 5 * time.Second
	return openflow.Flow{Cookie: cookie(number, roleEnded), Priority: priorityLead, Match: tcp(c.tenant, c.client), Hard: stray}
}

// ofTenant is the flow for all connections of a tenant's.
func ofTenant(number uint64, at netip.AddrPort) openflow.Flow {
	return openflow.Flow{Cookie: cookie(number, roleTenant), Priority: priorityTenant, Report: true,
		Match:   append(ip(at.Addr(), protocolTCP), openflow.Source(at.Addr()), openflow.U16(openflow.TCPSrc, at.Port())),
		Actions: []openflow.Action{openflow.LookAt(), normal}}
}

// ofClient is the flow for ICMP to a client, which could quote a tenant's address.
func ofClient(number uint64, at netip.Addr) openflow.Flow {
	protocol := uint8(protocolICMP)
	if at.Is6() {
		protocol = protocolICMPv6
	}
	return openflow.Flow{Cookie: cookie(number, roleClient), Priority: priorityICMP, Match: append(ip(at, protocol), openflow.Target(at)), Actions: handOver}
}

// ofPublic is the flow for routers' messages to an address of the gateway, about packets that were too large.
func ofPublic(number uint64, at netip.Addr) openflow.Flow {
	f := openflow.Flow{Cookie: cookie(number, rolePublic), Priority: priorityICMP, Report: true, Actions: handOver}
	if at.Is6() {
		f.Match = append(ip(at, protocolICMPv6), openflow.Target(at), openflow.U8(openflow.ICMPv6Type, tooBig6))
	} else {
		f.Match = append(ip(at, protocolICMP), openflow.Target(at), openflow.U8(openflow.ICMPv4Type, unreachable4))
	}
	return f
}
