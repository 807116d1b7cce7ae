package peer

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"heddle/lab"
)

// OpenVPNConfig says what the two ends of an OpenVPN tunnel agree on.
type OpenVPNConfig struct {
	// Endpoint is where the client finds the server.
	Endpoint netip.AddrPort
	// From is the client's device that the tunnel rides.
	From string
	// Device is what both ends call their TUN device.
	Device string
	// Server and Client are the addresses inside the tunnel.
	Server, Client netip.Prefix
	// MTU of the tunnel.
	MTU int
	// Routes are the client's into the tunnel.
	Routes []lab.Route
}

// OpenVPN starts the unmodified OpenVPN on two hosts, point to point with a fresh static key, and gives its ends their
// addresses. work is an existing directory. It fails with [ErrMissing] where OpenVPN is not on this machine.
func OpenVPN(ctx context.Context, server, client *lab.Host, work string, c OpenVPNConfig) (*Process, *Process, error) {
	if _, err := exec.LookPath("openvpn"); err != nil {
		return nil, nil, missing("openvpn", "apt-get install --no-install-recommends openvpn")
	}
	key := filepath.Join(work, "openvpn.key")
	if out, err := exec.CommandContext(ctx, "openvpn", "--genkey", "secret", key).CombinedOutput(); err != nil {
		return nil, nil, fmt.Errorf("openvpn --genkey: %w: %s", err, out)
	}
	if err := os.Chmod(key, 0o600); err != nil {
		return nil, nil, err
	}
	shared := []string{"--dev", c.Device, "--dev-type", "tun", "--secret", key, "--cipher", "AES-256-CBC", "--proto", "udp4",
		"--tun-mtu", fmt.Sprint(c.MTU), "--ifconfig-noexec", "--suppress-timestamps"}
	port := fmt.Sprint(c.Endpoint.Port())
	far, err := openVPN(ctx, server, c, c.Server, nil,
		append([]string{"--local", c.Endpoint.Addr().String(), "--port", port, "--ifconfig", c.Server.Addr().String(), c.Client.Addr().String()}, shared...))
	if err != nil {
		return nil, nil, err
	}
	near, err := openVPN(ctx, client, c, c.Client, c.Routes,
		append([]string{"--remote", c.Endpoint.Addr().String(), port, "--nobind", "--bind-dev", c.From, "--ifconfig", c.Client.Addr().String(), c.Server.Addr().String()}, shared...))
	if err != nil {
		far.Stop()
		return nil, nil, err
	}
	return far, near, nil
}

// openVPN starts one end, and gives its device an address.
func openVPN(ctx context.Context, host *lab.Host, c OpenVPNConfig, own netip.Prefix, routes []lab.Route, args []string) (*Process, error) {
	p, err := Start(ctx, host, "openvpn", args...)
	if err != nil {
		return nil, err
	}
	return p.started(p.await(ctx, func() error {
		if !strings.Contains(p.Log(), "link remote") && !strings.Contains(p.Log(), "Initialization Sequence Completed") {
			return errors.New("it has not begun")
		}
		return host.Configure(c.Device, c.MTU, []netip.Prefix{own}, routes)
	}))
}
