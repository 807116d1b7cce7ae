package pathkinds

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"heddle/lab"
	"heddle/lab/peer"
)

// openVPNConfig says what the two ends of an OpenVPN tunnel agree on.
type openVPNConfig struct {
	// endpoint is where the client finds the server.
	endpoint netip.AddrPort
	// from is the client's device that the tunnel rides.
	from string
	// device is what both ends call their TUN device.
	device string
	// server and client are the addresses inside the tunnel.
	server, client netip.Prefix
	mtu            int
	// routes are the client's into the tunnel.
	routes []lab.Route
}

// openVPN starts the unmodified OpenVPN on the hosts openvpn and client, point to point with a fresh static key, and gives its
// ends their addresses. It skips the test where OpenVPN is missing.
func (w *tunnels) openVPN(c openVPNConfig) {
	w.t.Helper()
	if _, err := exec.LookPath("openvpn"); err != nil {
		w.t.Skip(peer.ErrMissing, "apt-get install --no-install-recommends openvpn:", err)
	}
	key := filepath.Join(w.dir, "openvpn.key")
	if out, err := exec.CommandContext(w.t.Context(), "openvpn", "--genkey", "secret", key).CombinedOutput(); err != nil {
		w.t.Fatalf("openvpn --genkey: %v: %s", err, out)
	}
	if err := os.Chmod(key, 0o600); err != nil {
		w.t.Fatal(err)
	}
	shared := []string{"--dev", c.device, "--dev-type", "tun", "--secret", key, "--cipher", "AES-256-CBC", "--proto", "udp4",
		"--tun-mtu", fmt.Sprint(c.mtu), "--ifconfig-noexec", "--suppress-timestamps"}
	at, port := c.endpoint.Addr().String(), fmt.Sprint(c.endpoint.Port())
	server, client := c.server.Addr().String(), c.client.Addr().String()
	w.openVPNEnd("openvpn", c, c.server, nil,
		append([]string{"--local", at, "--port", port, "--ifconfig", server, client}, shared...))
	w.openVPNEnd("client", c, c.client, c.routes,
		append([]string{"--remote", at, port, "--nobind", "--bind-dev", c.from, "--ifconfig", client, server}, shared...))
}

// openVPNEnd starts one end, and gives its device an address.
func (w *tunnels) openVPNEnd(host string, c openVPNConfig, own netip.Prefix, routes []lab.Route, args []string) {
	w.t.Helper()
	p := w.need(peer.Start(w.t.Context(), w.Host(host), "openvpn", args...))
	err := p.Await(w.t.Context(), func() error {
		if !strings.Contains(p.Log(), "link remote") && !strings.Contains(p.Log(), "Initialization Sequence Completed") {
			return errors.New("it has not begun")
		}
		return w.Host(host).Configure(c.device, c.mtu, []netip.Prefix{own}, routes)
	})
	if err != nil {
		w.t.Fatal(err)
	}
}
