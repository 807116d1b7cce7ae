package pathkinds

import (
	"net/netip"
	"testing"
)

// A tunnel rides a tunnel: the network under both sees the lower one only, and the server the upper one's exit.
func TestTunnelsRideTunnels(t *testing.T) {
	w := newTunnels(t)
	inner := netip.MustParseAddrPort("10.9.0.1:1080") // a proxy that only the tunnel leads to
	w.dante("vpn", danteConfig{listen: inner})
	w.dante("proxy", danteConfig{listen: proxyAt})
	for _, c := range []struct {
		name string
		args []string
		sees []string // the network at lte
		exit netip.Addr
	}{
		{"SOCKS5 over WireGuard", []string{"--via", "p=socks5:" + inner.String() + "@t", "--path", "t=wireguard:" + w.file + "@lte"},
			[]string{"WireGuard " + vpnAt.String()}, vpnAt.Addr()},
		{"WireGuard over SOCKS5", []string{"--via", "t=wireguard:" + w.file + "@p", "--path", "p=socks5:" + proxyAt.String() + "@lte"},
			[]string{"tcp " + proxyAt.String(), "udp " + proxyAt.Addr().String()}, insideVPN},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := w.in(t)
			stop := w.watch("client/home", "client/lte", "client/office", "server/core")
			r := w.split(append(c.args, "--via", "home=if:home", "--path", "lte=if:lte", "--schedule", "round-robin", "--every", "5p")...)
			session := w.session()
			if err := w.fetch(); err != nil {
				t.Fatalf("%v\n%s", err, r.Log())
			}
			r.await(up)
			session.Stop()
			r.Stop()
			seen := stop()
			only(t, "home", conversations(seen["client/home"]), 20, "WireGuard "+tunnelAt.String())
			only(t, "lte", conversations(seen["client/lte"]), 1, c.sees...)
			only(t, "office", conversations(seen["client/office"]), 0)
			if heard := heardFrom(seen["server/core"]); len(heard) != 2 || heard[homeAddr] < 20 || heard[c.exit] < 20 {
				t.Errorf("the server heard from %v", heard)
			}
		})
	}
}
