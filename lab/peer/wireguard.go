package peer

import (
	"bufio"
	"context"
	"crypto/ecdh"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"heddle/lab"
)

const (
	// wireguardMTU is wg-quick's choice for a link of 1500 bytes.
	wireguardMTU = 1420
	// wireguardDevice is the device of the server and of a wireguard-go client.
	wireguardDevice = "wg0"
)

// WireGuardConfig is shared by a WireGuard server and its one client. All fields but Endpoint may be zero.
type WireGuardConfig struct {
	Endpoint       netip.AddrPort // of the server, which listens on its port
	Server, Client []netip.Prefix // addresses inside the tunnel; empty for 10.9.0.1 and 10.9.0.2, fd09::1 and fd09::2
	Allowed        []netip.Prefix // what the client sends into the tunnel; empty for everything
	DNS            []netip.Addr   // nameservers in the client's file
	MTU            int            // of both ends of the tunnel; 0 for 1420
	File           string         // client's wg-quick file, see [WireGuard.WriteFile]; empty for none
	Boringtun      bool           // the server is boringtun, which has to be installed, instead of wireguard-go
}

// WireGuard is a WireGuard server, and what its client needs.
type WireGuard struct {
	*Process
	config         WireGuardConfig
	public         *ecdh.PublicKey
	client, shared []byte // private keys
}

// String hides the keys.
func (w *WireGuard) String() string { return "WireGuard at " + w.config.Endpoint.String() }

// GoString hides the keys as well.
func (w *WireGuard) GoString() string { return w.String() }

func (c *WireGuardConfig) fill() {
	if c.Server == nil {
		c.Server = []netip.Prefix{netip.MustParsePrefix("10.9.0.1/24"), netip.MustParsePrefix("fd09::1/64")}
	}
	if c.Client == nil {
		c.Client = []netip.Prefix{netip.MustParsePrefix("10.9.0.2/32"), netip.MustParsePrefix("fd09::2/128")}
	}
	if c.Allowed == nil {
		c.Allowed = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
	}
	if c.MTU == 0 {
		c.MTU = wireguardMTU
	}
}

// NewWireGuard makes new keys with crypto/rand, and returns the server's settings for wireguard-go. It starts no server.
func NewWireGuard(c WireGuardConfig) (w *WireGuard, settings string, err error) {
	c.fill()
	server, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return nil, "", err
	}
	client, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return nil, "", err
	}
	w = &WireGuard{config: c, public: server.PublicKey(), client: client.Bytes(), shared: make([]byte, 32)}
	rand.Read(w.shared)
	settings = fmt.Sprintf("private_key=%x\nlisten_port=%d\nreplace_peers=true\npublic_key=%x\npreshared_key=%x\n",
		server.Bytes(), c.Endpoint.Port(), client.PublicKey().Bytes(), w.shared)
	for _, p := range c.Client {
		settings += "allowed_ip=" + p.Masked().String() + "\n"
	}
	return w, settings, nil
}

// Public is the server's public key.
func (w *WireGuard) Public() []byte { return w.public.Bytes() }

// WireGuardServer starts an unmodified server on a host, with new keys, and writes the client's wg-quick file.
func WireGuardServer(ctx context.Context, host *lab.Host, c WireGuardConfig) (*WireGuard, error) {
	w, settings, err := NewWireGuard(c)
	if err != nil {
		return nil, err
	}
	c = w.config
	start := wireguardGo
	if c.Boringtun {
		start = boringtun
	}
	if w.Process, err = start(ctx, host, settings); err != nil {
		return nil, err
	}
	err = host.Configure(wireguardDevice, c.MTU, c.Server, nil)
	if err == nil && c.File != "" {
		err = w.WriteFile(c.File, c.Endpoint)
	}
	if _, err := w.OrStop(err); err != nil {
		return nil, err
	}
	return w, nil
}

// Client starts the unmodified wireguard-go as the client, with the server or a relay at endpoint. The allowed
// addresses become routes into the tunnel and must not contain the endpoint, or the tunnel would carry its own packets.
func (w *WireGuard) Client(ctx context.Context, host *lab.Host, endpoint netip.AddrPort) (*Process, error) {
	settings := fmt.Sprintf("private_key=%x\nreplace_peers=true\npublic_key=%x\npreshared_key=%x\nendpoint=%s\n",
		w.client, w.public.Bytes(), w.shared, endpoint)
	var routes []lab.Route
	for _, p := range w.config.Allowed {
		if p.Contains(endpoint.Addr()) {
			return nil, fmt.Errorf("the allowed addresses %s hold the endpoint %s", p, endpoint)
		}
		settings += "allowed_ip=" + p.String() + "\n"
		routes = append(routes, lab.Route{To: p})
	}
	p, err := wireguardGo(ctx, host, settings)
	if err != nil {
		return nil, err
	}
	return p.OrStop(host.Configure(wireguardDevice, w.config.MTU, w.config.Client, routes))
}

// wireguardGo starts wireguard-go.
func wireguardGo(ctx context.Context, host *lab.Host, settings string) (*Process, error) {
	program, err := GoProgram(ctx, "wireguard-go", "golang.zx2c4.com/wireguard", "")
	if err != nil {
		return nil, err
	}
	return configured(ctx, host, settings, program, "-f", wireguardDevice)
}

// boringtun starts Cloudflare's implementation in Rust.
func boringtun(ctx context.Context, host *lab.Host, settings string) (*Process, error) {
	const program = "boringtun-cli"
	if _, err := exec.LookPath(program); err != nil {
		return nil, missing(program, "cargo install --locked boringtun-cli@0.7.1, and put cargo's bin directory into PATH")
	}
	return configured(ctx, host, settings, program, "--foreground", "--disable-drop-privileges", wireguardDevice)
}

// configured starts a program of WireGuard and sends it the settings over its socket, so that no key is in an argument or a file.
func configured(ctx context.Context, host *lab.Host, settings, program string, args ...string) (*Process, error) {
	p, err := Start(ctx, host, program, args...)
	if err != nil {
		return nil, err
	}
	socket := filepath.Join(host.WireGuardDir(), wireguardDevice+".sock")
	return p.OrStop(p.Await(ctx, func() error { return configure(socket, settings) }))
}

// configure sends one set operation of WireGuard's cross-platform interface.
func configure(socket, settings string) error {
	// The path may exceed the 108 bytes of a socket address.
	dir, err := os.Open(filepath.Dir(socket))
	if err != nil {
		return err
	}
	defer dir.Close()
	conn, err := net.Dial("unix", fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(socket)))
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "set=1\n%s\n", settings); err != nil {
		return err
	}
	answer, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return err
	}
	if strings.TrimSpace(answer) != "errno=0" {
		return fmt.Errorf("the server refuses its settings: %s", strings.TrimSpace(answer))
	}
	return nil
}

// WriteFile writes the client's wg-quick file for the server at endpoint. Only its owner can read it. It must not exist.
func (w *WireGuard) WriteFile(name string, endpoint netip.AddrPort) error {
	key := base64.StdEncoding.EncodeToString
	var b strings.Builder
	fmt.Fprintf(&b, "[Interface]\nPrivateKey = %s\nAddress = %s\nMTU = %d\n", key(w.client), join(w.config.Client), w.config.MTU)
	if len(w.config.DNS) > 0 {
		fmt.Fprintf(&b, "DNS = %s\n", join(w.config.DNS))
	}
	fmt.Fprintf(&b, "\n[Peer]\nPublicKey = %s\nPresharedKey = %s\nEndpoint = %s\nAllowedIPs = %s\n",
		key(w.public.Bytes()), key(w.shared), endpoint, join(w.config.Allowed))
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(b.String())
	return errors.Join(err, f.Close())
}

func join[T fmt.Stringer](list []T) string {
	var words []string
	for _, v := range list {
		words = append(words, v.String())
	}
	return strings.Join(words, ", ")
}
