package gateway

import (
	"strings"
	"testing"

	"heddle/pseudonym/ca"
)

func TestModes(t *testing.T) {
	p := Place{Key: ca.KeyID{1}, Addresses: []string{"192.0.2.1:1", "unix:/run/x", "v6:2001:db8::7", "handoff:192.0.2.1:2", "handoff-direct:192.0.2.1:3", "192.0.2.2:1"}}
	for mode, want := range map[Mode][3]string{
		"":      {"192.0.2.1:3", "192.0.2.1:2", "192.0.2.1:1 unix:/run/x 192.0.2.2:1"},
		Auto:    {"192.0.2.1:3", "192.0.2.1:2", "192.0.2.1:1 unix:/run/x 192.0.2.2:1"},
		V6:      {},
		Handoff: {"192.0.2.1:3", "192.0.2.1:2", ""},
		Pass:    {"", "", "unix:/run/x"},
		Relay:   {"", "", "192.0.2.1:1 192.0.2.2:1"},
	} {
		to := p.split(mode)
		if got := [3]string{strings.Join(to.direct, " "), strings.Join(to.agents, " "), strings.Join(to.sidecars, " ")}; got != want {
			t.Errorf("%q: %q, want %q", mode, got, want)
		}
		own := Place{Addresses: []string{"192.0.2.1:1"}}
		if to := own.split(mode); len(to.direct)+len(to.agents) > 0 || len(to.sidecars) != 1 {
			t.Errorf("%q: the cloud's own store is at %+v", mode, to)
		}
	}
}

func TestAgentsOfAFamily(t *testing.T) {
	all := []string{"192.0.2.1:1", "[2001:db8::1]:1", "agent.example:1"}
	for v6, want := range map[bool]string{false: "192.0.2.1:1 agent.example:1", true: "[2001:db8::1]:1 agent.example:1"} {
		if got := strings.Join(agentKind{v6: v6}.filter(all), " "); got != want {
			t.Errorf("IPv6 %v: %s, want %s", v6, got, want)
		}
	}
}
