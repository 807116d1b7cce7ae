package gateway

import (
	"net/netip"
	"slices"
	"strings"

	"heddle/internal/netutil"
	"heddle/pseudonym/ca"
)

// Mode is the way in which a gateway leads connections to tenants.
type Mode string

// The modes. The zero Mode is Auto.
const (
	Auto    Mode = "auto"    // moves a connection, passes it or relays it, the first that the tenant and this machine allow
	V6      Mode = "v6"      // takes none of tenants: a switch leads their packets by the address
	Handoff Mode = "handoff" // moves it to a tenant on another machine
	Pass    Mode = "fdpass"  // passes it to a tenant on this machine
	Relay   Mode = "proxy"   // relays all bytes
)

// Modes returns all modes.
func Modes() []string {
	return []string{string(Auto), string(V6), string(Handoff), string(Pass), string(Relay)}
}

// AgentPrefix begins the address of a tenant's agent, and DirectPrefix that of one which answers clients past the gateway's machine.
const (
	AgentPrefix  = "handoff:"
	DirectPrefix = "handoff-direct:"
)

// AgentAddress returns where an agent listens, HOST:PORT, and whether it answers directly; or false if an address is none of an agent.
func AgentAddress(address string) (at string, direct, ok bool) {
	if at, ok = strings.CutPrefix(address, DirectPrefix); ok {
		return at, true, true
	}
	at, ok = strings.CutPrefix(address, AgentPrefix)
	return at, false, ok
}

// V6Prefix begins the address of IPv6 that a switch leads packets to pseudo-addresses of a tenant to.
const V6Prefix = "v6:"

// V6Address returns the address of IPv6 among the addresses of a tenant, or false if there is none.
func V6Address(addresses []string) (netip.Addr, bool) {
	for _, text := range addresses {
		if text, ok := strings.CutPrefix(text, V6Prefix); ok {
			a, err := netip.ParseAddr(text)
			return a, err == nil && a.Is6() && !a.Is4In6() && a.Zone() == "" && a.IsGlobalUnicast()
		}
	}
	return netip.Addr{}, false
}

// Moves reports whether the addresses of a tenant have that of an agent, to which connections move.
func Moves(addresses []string) bool {
	return slices.ContainsFunc(addresses, func(a string) bool {
		_, _, ok := AgentAddress(a)
		return ok
	})
}

// waysTo are the addresses of a tenant that a mode takes: those of agents, HOST:PORT, and of sidecars.
type waysTo struct{ direct, agents, sidecars []string }

// split returns the addresses that a mode takes.
func (p Place) split(m Mode) (to waysTo) {
	if p.Key == (ca.KeyID{}) {
		return waysTo{sidecars: p.Addresses}
	}
	for _, a := range p.Addresses {
		agent, direct, moves := AgentAddress(a)
		_, passes := netutil.UnixFile(a)
		if strings.HasPrefix(a, V6Prefix) {
			continue
		}
		kind := Relay
		switch {
		case moves:
			kind = Handoff
		case passes:
			kind = Pass
		}
		switch {
		case !slices.Contains([]Mode{"", Auto, kind}, m):
		case direct:
			to.direct = append(to.direct, agent)
		case moves:
			to.agents = append(to.agents, agent)
		default:
			to.sidecars = append(to.sidecars, a)
		}
	}
	return to
}
