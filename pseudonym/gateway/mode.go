package gateway

import (
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
	Handoff Mode = "handoff" // moves it to a tenant on another machine
	Pass    Mode = "fdpass"  // passes it to a tenant on this machine
	Relay   Mode = "proxy"   // relays all bytes
)

// Modes returns all modes.
func Modes() []string { return []string{string(Auto), string(Handoff), string(Pass), string(Relay)} }

// AgentPrefix begins the address of a tenant's agent.
const AgentPrefix = "handoff:"

// split returns the addresses of agents, HOST:PORT, and those of sidecars, as far as a mode takes them.
func (p Place) split(m Mode) (agents, sidecars []string) {
	if p.Key == (ca.KeyID{}) {
		return nil, p.Addresses
	}
	for _, a := range p.Addresses {
		agent, moves := strings.CutPrefix(a, AgentPrefix)
		_, passes := netutil.UnixFile(a)
		kind := Relay
		switch {
		case moves:
			kind = Handoff
		case passes:
			kind = Pass
		}
		switch {
		case !slices.Contains([]Mode{"", Auto, kind}, m):
		case moves:
			agents = append(agents, agent)
		default:
			sidecars = append(sidecars, a)
		}
	}
	return agents, sidecars
}
