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
	Dir     string // of its files
	on      Devices
	gateway netip.Addr
}

// Root is the file of the cloud's root certificate.
func (c *Cloud) Root() string { return filepath.Join(c.Dir, "root.pem") }

// File is the cloud's cloud.toml.
func (c *Cloud) File() string { return filepath.Join(c.Dir, "cloud.toml") }

// StartCloud starts all parts of a cloud on the host cloud. Its files go to dir, which it makes. Each replaced pair changes what its
// cloud.toml says.
func StartCloud(ctx context.Context, on Devices, dir string, gateway netip.Addr, replaced ...string) (*Cloud, error) {
	c := &Cloud{Dir: dir, on: on, gateway: gateway}
	if _, err := ran(ctx, on, "cloud", "pseudonym", "init", CloudZone, "--gateway", gateway.String(), "--dir", dir); err != nil {
		return nil, err
	}
	if len(replaced) > 0 {
		text, err := os.ReadFile(c.File())
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(c.File(), []byte(strings.NewReplacer(replaced...).Replace(string(text))), 0o600); err != nil {
			return nil, err
		}
	}
	_, err := on.Start(ctx, "cloud", "serving "+CloudZone, "pseudonym", "serve", c.File())
	return c, err
}

// Sidecar describes the sidecar of a site.
type Sidecar struct {
	Host, Site string
	Listen     netip.AddrPort // where the gateway comes to
	Store      netip.AddrPort // of the cloud, as the sidecar reaches it
	To         string         // the site's own server
	Flags      []string       // of `heddle pseudonym tenant run`
}

// At is the sidecar of a site in a world of [lab.Cloud], before a web server on port 80.
func (c *Cloud) At(host, site string, inside netip.Addr, flags ...string) Sidecar {
	near := inside.Prev() // the cloud, in the site's network
	return Sidecar{Host: host, Site: site, Listen: netip.AddrPortFrom(inside, SidecarPort), Store: netip.AddrPortFrom(near, tenantsPort),
		To: "http://127.0.0.1:80", Flags: append([]string{"--gateway-from", netip.PrefixFrom(near, near.BitLen()).String()}, flags...)}
}

// Add adds a site to the cloud, and starts its sidecar.
func (c *Cloud) Add(ctx context.Context, s Sidecar) (*Process, error) {
	identity := filepath.Join(c.Dir, s.Host+"-tenant.pem")
	key, err := ran(ctx, c.on, s.Host, "pseudonym", "tenant", "key", "--identity", identity)
	if err != nil {
		return nil, err
	}
	if _, err := ran(ctx, c.on, "cloud", "pseudonym", "tenant", "add", c.File(), s.Site, "--address", s.Listen.String(), "--key", strings.TrimSpace(key)); err != nil {
		return nil, err
	}
	return c.on.Start(ctx, s.Host, "listening on", append([]string{"pseudonym", "tenant", "run", "--zone", CloudZone, "--store", s.Store.String(),
		"--root", c.Root(), "--identity", identity, "--to", s.To, "--listen", s.Listen.String()}, s.Flags...)...)
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
