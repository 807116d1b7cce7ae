package peer

import (
	"context"
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
)

// CloudZone is the zone of each [Cloud].
const CloudZone = "cloud.example"

// Ports of a cloud, and of the sidecars of its sites.
const (
	tenantsPort = 4481
	SidecarPort = 4443
)

// Cloud gives people pseudonyms of its sites, by the heddle under test.
type Cloud struct {
	Dir string // of its files
	on  Devices
}

// Root is the file of the cloud's root certificate.
func (c *Cloud) Root() string { return filepath.Join(c.Dir, "root.pem") }

// File is the cloud's cloud.toml.
func (c *Cloud) File() string { return filepath.Join(c.Dir, "cloud.toml") }

// NewCloud makes the files of a cloud in dir, which it makes. gateway is its public address.
func NewCloud(ctx context.Context, on Devices, dir string, gateway netip.Addr) (*Cloud, error) {
	c := &Cloud{Dir: dir, on: on}
	_, err := ran(ctx, on, "cloud", "pseudonym", "init", CloudZone, "--gateway", gateway.String(), "--dir", dir)
	return c, err
}

// By is the same cloud for people with other devices.
func (c *Cloud) By(on Devices) *Cloud { return &Cloud{c.Dir, on} }

// Serve starts the parts of the cloud on the host cloud: all, or those that flags name.
func (c *Cloud) Serve(ctx context.Context, flags ...string) (*Process, error) {
	return c.on.Start(ctx, "cloud", "serving "+CloudZone, append([]string{"pseudonym", "serve", c.File()}, flags...)...)
}

// StartCloud is [NewCloud] and [Cloud.Serve].
func StartCloud(ctx context.Context, on Devices, dir string, gateway netip.Addr) (*Cloud, error) {
	c, err := NewCloud(ctx, on, dir, gateway)
	if err == nil {
		_, err = c.Serve(ctx)
	}
	return c, err
}

// Replace replaces texts in the cloud's cloud.toml, given in pairs.
func (c *Cloud) Replace(pairs ...string) error {
	text, err := os.ReadFile(c.File())
	if err != nil {
		return err
	}
	return os.WriteFile(c.File(), []byte(strings.NewReplacer(pairs...).Replace(string(text))), 0o600)
}

// Sidecar describes the sidecar of a site.
type Sidecar struct {
	Host, Site string
	Listen     netip.AddrPort // where the gateway comes to
	Socket     string         // FILE of a socket of this machine in place of Listen
	Addresses  []string       // where the cloud finds it, unless that is Listen or Socket
	Store      netip.AddrPort // of the cloud, as the sidecar reaches it
	To         string         // the site's own server
	Flags      []string       // of `heddle pseudonym tenant run`
}

func (s Sidecar) listen() string {
	if s.Socket != "" {
		return "unix:" + s.Socket
	}
	return s.Listen.String()
}

// At is the sidecar of a site in a world of [lab.Cloud], before a web server on port 80.
func (c *Cloud) At(host, site string, inside netip.Addr, flags ...string) Sidecar {
	near := inside.Prev() // the cloud, in the site's network
	return Sidecar{Host: host, Site: site, Listen: netip.AddrPortFrom(inside, SidecarPort), Store: netip.AddrPortFrom(near, tenantsPort),
		To: "http://127.0.0.1:80", Flags: append([]string{"--gateway-from", netip.PrefixFrom(near, near.BitLen()).String()}, flags...)}
}

// Add is [Cloud.Enrol] and [Cloud.Sidecar].
func (c *Cloud) Add(ctx context.Context, s Sidecar) (*Process, error) {
	if err := c.Enrol(ctx, s); err != nil {
		return nil, err
	}
	return c.Sidecar(ctx, s)
}

// Enrol makes the key of a sidecar, and adds its site to the cloud.
func (c *Cloud) Enrol(ctx context.Context, s Sidecar) error {
	key, err := ran(ctx, c.on, s.Host, "pseudonym", "tenant", "key", "--identity", c.Identity(s.Site))
	if err != nil {
		return err
	}
	args := []string{"pseudonym", "tenant", "add", c.File(), s.Site, "--key", strings.TrimSpace(key)}
	addresses := s.Addresses
	if addresses == nil {
		addresses = []string{s.listen()}
	}
	for _, a := range addresses {
		args = append(args, "--address", a)
	}
	_, err = ran(ctx, c.on, "cloud", args...)
	return err
}

// Identity is the file of the key of a site's sidecars.
func (c *Cloud) Identity(site string) string { return filepath.Join(c.Dir, site+"-tenant.pem") }

// Sidecar starts the sidecar of a site that is enrolled.
func (c *Cloud) Sidecar(ctx context.Context, s Sidecar) (*Process, error) {
	return c.on.Start(ctx, s.Host, "listening on", append([]string{"pseudonym", "tenant", "run", "--zone", CloudZone, "--store", s.Store.String(),
		"--root", c.Root(), "--identity", c.Identity(s.Site), "--to", s.To, "--listen", s.listen()}, s.Flags...)...)
}

// Nginx starts what lets nginx serve a site that is enrolled, and returns the file that nginx includes.
func (c *Cloud) Nginx(ctx context.Context, s Sidecar, dir string) (include string, err error) {
	_, err = c.on.Start(ctx, s.Host, "nginx can include", append([]string{"pseudonym", "tenant", "nginx", "--zone", CloudZone, "--store", s.Store.String(), "--root", c.Root(),
		"--identity", c.Identity(s.Site), "--to", s.To, "--site", s.Site, "--nginx-dir", dir, "--listen", s.listen()}, s.Flags...)...)
	return filepath.Join(dir, "nginx.conf"), err
}

// Agent starts the agent of a site that is enrolled. It takes connections from gateways for the sidecar at s.Socket, unless flags say otherwise.
func (c *Cloud) Agent(ctx context.Context, s Sidecar, listen netip.AddrPort, flags ...string) (*Process, error) {
	gateways, err := ran(ctx, c.on, "cloud", "pseudonym", "gateway-key", c.File())
	if err != nil {
		return nil, err
	}
	return c.on.Start(ctx, s.Host, "listening on", append([]string{"pseudonym", "tenant", "agent", "--identity", c.Identity(s.Site), "--gateway-key", strings.TrimSpace(gateways),
		"--to", s.listen(), "--listen", listen.String()}, flags...)...)
}

// Pseudonym is what `heddle pseudonym get --json` prints.
type Pseudonym struct {
	Name, Site, URL, Dir string
}

// Files are curl's arguments for the files of a pseudonym.
func (p Pseudonym) Files() []string {
	return []string{"--cacert", filepath.Join(p.Dir, "root.pem"), "--cert", p.Certificate(), "--key", p.Key()}
}

// Certificate is the file of the user's certificate.
func (p Pseudonym) Certificate() string { return filepath.Join(p.Dir, "cert.pem") }

// Key is the file of its key.
func (p Pseudonym) Key() string { return filepath.Join(p.Dir, "key.pem") }

// To is the URL of a path, such as "/page.html". It contains the capability.
func (p Pseudonym) To(path string) string { return strings.Replace(p.URL, "/?", path+"?", 1) }

// Get gets a pseudonym of a site for the user of a host.
func (c *Cloud) Get(ctx context.Context, host, site string, flags ...string) (p Pseudonym, err error) {
	out, err := ran(ctx, c.on, host, append([]string{"pseudonym", "get", site, "--zone", CloudZone, "--root", c.Root(), "--json"}, flags...)...)
	if err == nil {
		err = json.Unmarshal([]byte(out), &p)
	}
	return p, err
}
