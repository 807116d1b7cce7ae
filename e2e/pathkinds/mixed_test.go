package pathkinds

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"heddle/internal/polltest"
	"heddle/lab"
	"heddle/observe"
)

// conversations counts the client's packets to each server, written as PROTOCOL ADDRESS, or TRANSPORT ADDRESS:PORT where
// the protocol is unknown.
func conversations(c *observe.Capture) map[string]int {
	seen := map[string]int{}
	for _, p := range c.Packets {
		f := c.Flows[p.Flow]
		if f.Server.Addr().IsMulticast() || f.Server.Addr().IsLinkLocalUnicast() || !p.Out || f.Transport == "ip" {
			continue // the machine's own neighbour discovery and the like
		}
		name := f.Transport + " " + f.Server.String()
		if f.Protocol == "WireGuard" {
			name = f.Protocol + " " + f.Server.String()
		}
		seen[name] += 1
	}
	return seen
}

// only fails where a network saw a conversation that starts with none of allowed, or too little of one.
func only(t *testing.T, place string, seen map[string]int, least int, allowed ...string) {
	t.Helper()
	counts := make([]int, len(allowed))
next:
	for name, n := range seen {
		for i, a := range allowed {
			if strings.HasPrefix(name, a) {
				counts[i] += n
				continue next
			}
		}
		t.Errorf("%s carried %d packets of %s", place, n, name)
	}
	for i, a := range allowed {
		if counts[i] < least {
			t.Errorf("%s carried %d packets of %s", place, counts[i], a)
		}
	}
}

// heardFrom counts what the server heard from each address.
func heardFrom(c *observe.Capture) map[netip.Addr]int {
	heard := map[netip.Addr]int{}
	for _, p := range c.Packets {
		if f := c.Flows[p.Flow]; p.Out && f.Server == tunnelAt {
			heard[f.Client.Addr()]++
		}
	}
	return heard
}

// Kinds mix in one session. Each access network sees its own path only, in the clothes of that path's kind, and the
// server sees one client address a path.
func TestKindsMixInOneSession(t *testing.T) {
	w := newTunnels(t)
	w.dante("proxy", danteConfig{listen: proxyAt})
	w.openVPN(openVPNConfig{
		endpoint: openvpnAt, from: "home", device: "ovpn0", mtu: 1400, server: netip.MustParsePrefix("10.8.0.1/24"), client: insideOpenVPN,
		routes: []lab.Route{{To: netip.MustParsePrefix("0.0.0.0/0"), Metric: 400}}})
	for _, c := range []struct {
		name, first string
		home        string // what the network at home sees
		address     netip.Addr
	}{
		{"bare", "home=if:home", "WireGuard " + tunnelAt.String(), homeAddr},
		{"OpenVPN", "home=if:ovpn0", "udp " + openvpnAt.String(), insideOpenVPN.Addr()},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := w.in(t)
			addresses := []netip.Addr{c.address, insideVPN, proxyAt.Addr()}
			polltest.Again(t, func(int) error { // a proxy that gets no processor drops datagrams, or answers so late that its path rests for a while
				stop := w.watch("client/home", "client/lte", "client/office", "server/core")
				r := w.split("--via", c.first, "--via", "t=wireguard:"+w.file+"@lte", "--via", "p=socks5:"+proxyAt.String()+"@office",
					"--path", "lte=if:lte", "--path", "office=if:office", "--schedule", "round-robin", "--every", "5p")
				session := w.session()
				if err := w.fetch(); err != nil {
					t.Fatalf("%v\n%s", err, r.Log())
				}
				r.await(up)
				session.Stop()
				r.Stop()
				seen := stop()
				const least = 20
				home := conversations(seen["client/home"])
				if c.name == "bare" {
					delete(home, "udp "+openvpnAt.String()) // OpenVPN's own, without content
				}
				only(t, "home", home, least, c.home)
				only(t, "lte", conversations(seen["client/lte"]), least, "WireGuard "+vpnAt.String())
				only(t, "office", conversations(seen["client/office"]), 1, "tcp "+proxyAt.String(), "udp "+proxyAt.Addr().String())
				heard := heardFrom(seen["server/core"])
				if len(heard) != 3 {
					t.Errorf("the server heard from %v", heard)
				}
				if !evenly(heard, addresses) {
					return fmt.Errorf("the server did not hear about a third from each of %v: %v", addresses, heard)
				}
				return nil
			})
		})
	}
}

// evenly tells that each address sent about a third.
func evenly(heard map[netip.Addr]int, addresses []netip.Addr) bool {
	all := 0
	for _, n := range heard {
		all += n
	}
	return !slices.ContainsFunc(addresses, func(a netip.Addr) bool {
		share := float64(heard[a]) / float64(all)
		return !(share >= 0.25 && share <= 0.42)
	})
}
