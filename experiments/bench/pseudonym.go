package bench

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"heddle/lab"
	"heddle/lab/peer"
)

// Pseudonym is figures 3(a) and 3(b) of PoPSiCl: how long it takes to fetch an object with a connection of its own, by its size, and how
// many such fetches a site answers, relative to nginx that asks for a client's certificate itself.
func Pseudonym() Bench {
	return Bench{
		name: "pseudonym",
		topologies: func(quick bool) []*topology {
			sizes := pseudonymSizes
			if quick {
				sizes = sizes[:1]
			}
			var all []*topology
			for _, size := range sizes {
				all = append(all, pseudonymTopology("latency/"+size.name, func(ctx context.Context, w way) ([]figure, error) {
					return fetchLatency(ctx, w, size.name, quick)
				}))
			}
			return append(all, pseudonymTopology("rate", func(ctx context.Context, w way) ([]figure, error) {
				return fetchRate(ctx, w, pseudonymSizes[0].name, quick)
			}))
		},
		paper: pseudonymPaper,
	}
}

// pseudonymSizes are of objects. The paper's go from 1 KiB to 5 MiB.
var pseudonymSizes = []struct {
	name  string
	bytes int
}{{"1KiB", 1 << 10}, {"10KiB", 10 << 10}, {"100KiB", 100 << 10}, {"1MiB", 1 << 20}, {"5MiB", 5 << 20}}

// The ways to the site: nginx with a client's certificate and without, the sidecar before nginx, and a gateway before the sidecar.
const (
	wayMutual  = "mtls"
	wayHTTPS   = "https"
	waySidecar = "sidecar"
	wayGateway = "gateway"
)

// pseudonymPaper returns what figure 3(b) shows at the largest rate.
func pseudonymPaper(name string) *float64 {
	const mutual = 450.9
	for suffix, rate := range map[string]float64{"rate/" + wayHTTPS: 490.5, "rate/" + wayGateway: 325.8} {
		if strings.HasSuffix(name, suffix) {
			ratio := rate / mutual
			return &ratio
		}
	}
	return nil
}

// Addresses of the cloud.
var (
	pseudonymGateway = netip.MustParseAddr("10.1.0.1")
	pseudonymSite    = netip.MustParseAddr("10.9.1.2")
)

const (
	pseudonymZone    = "cloud.example"
	pseudonymName    = "news.example"
	pseudonymSidecar = 4443
)

// pseudonymWorld is a client, a cloud that routes, and a site in it. Its links have no limit.
func pseudonymWorld() lab.World {
	prefix := func(text string) []netip.Prefix { return []netip.Prefix{netip.MustParsePrefix(text)} }
	anywhere := netip.MustParsePrefix("0.0.0.0/0")
	return lab.World{Name: "pseudonym", About: "a client, a cloud, and a site in it", Client: "client",
		Hosts: []lab.HostSpec{
			{Name: "client", Routes: []lab.Route{{To: anywhere, Via: pseudonymGateway, Device: "net"}}},
			{Name: "cloud", Router: true},
			{Name: "site", Routes: []lab.Route{{To: anywhere, Via: netip.MustParseAddr("10.9.1.1"), Device: "net"}}},
		},
		Links: []lab.LinkSpec{
			{Name: "client", A: lab.End{Host: "client", Device: "net", Addrs: prefix("10.1.0.2/24")}, B: lab.End{Host: "cloud", Device: "client", Addrs: prefix("10.1.0.1/24")}},
			{Name: "site", A: lab.End{Host: "cloud", Device: "site", Addrs: prefix("10.9.1.1/24")}, B: lab.End{Host: "site", Device: "net", Addrs: prefix("10.9.1.2/24")}},
		}}
}

// way is one way to the site.
type way struct {
	host  *lab.Host
	at    netip.AddrPort
	tls   *tls.Config
	query string // of each URL
}

func pseudonymTopology(name string, measure func(context.Context, way) ([]figure, error)) *topology {
	ways := map[string]way{}
	t := &topology{name: name, world: pseudonymWorld(), serve: func(ctx context.Context, s *stage) error { return servePseudonym(ctx, s, ways) }}
	for _, w := range []string{wayMutual, wayHTTPS, waySidecar, wayGateway} {
		t.cases = append(t.cases, variant{w, func(ctx context.Context, _ *stage, _ int) ([]figure, error) { return measure(ctx, ways[w]) }})
	}
	return t
}

// servePseudonym starts the site's nginx, a cloud, and the site's sidecar, gets a pseudonym, and says how to come to each.
func servePseudonym(ctx context.Context, s *stage, ways map[string]way) error {
	client, site := s.Host("client"), s.Host("site")
	root := filepath.Join(s.work, "objects")
	if err := os.MkdirAll(root, 0o755); err != nil {
		return err
	}
	for _, size := range pseudonymSizes {
		if err := os.WriteFile(filepath.Join(root, size.name), make([]byte, size.bytes), 0o644); err != nil {
			return err
		}
	}
	certificate, key := filepath.Join(s.work, "client.pem"), filepath.Join(s.work, "client-key.pem")
	if err := peer.SelfSigned(certificate, key, nil, nil); err != nil {
		return err
	}
	web, err := peer.MutualWebServer(ctx, site, root, s.work, certificate, pseudonymName)
	if err != nil {
		return err
	}
	plain, err := clientTLS(pseudonymName, web.Certificate, "", "")
	if err != nil {
		return err
	}
	shown, err := clientTLS(pseudonymName, web.Certificate, certificate, key)
	if err != nil {
		return err
	}
	ways[wayHTTPS] = way{client, netip.AddrPortFrom(pseudonymSite, 443), plain, ""}
	ways[wayMutual] = way{client, netip.AddrPortFrom(pseudonymSite, peer.MutualPort), shown, ""}
	own, query, err := servePseudonymCloud(ctx, s)
	if err != nil {
		return err
	}
	ways[waySidecar] = way{client, netip.AddrPortFrom(pseudonymSite, pseudonymSidecar), own, query}
	ways[wayGateway] = way{client, netip.AddrPortFrom(pseudonymGateway, 443), own, query}
	return nil
}

// servePseudonymCloud starts what is Heddle's, and gets a pseudonym of the site.
func servePseudonymCloud(ctx context.Context, s *stage) (*tls.Config, string, error) {
	client, cloud, site := s.Host("client"), s.Host("cloud"), s.Host("site")
	run := func(h *lab.Host, args ...string) (string, error) {
		cmd := h.Command(ctx, s.heddle, append([]string{"pseudonym"}, args...)...)
		cmd.Env = append(os.Environ(), "HOME="+s.work, "XDG_CONFIG_HOME="+s.work)
		out, err := cmd.Output()
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			err = fmt.Errorf("heddle pseudonym %s: %w: %s", args[0], err, exit.Stderr)
		}
		return string(out), err
	}
	dir, identity := filepath.Join(s.work, "cloud"), filepath.Join(s.work, "tenant.pem")
	file := filepath.Join(dir, "cloud.toml")
	if _, err := run(cloud, "init", pseudonymZone, "--gateway", pseudonymGateway.String(), "--dir", dir); err != nil {
		return nil, "", err
	}
	p, err := peer.Start(ctx, cloud, s.heddle, "pseudonym", "serve", file)
	if err != nil {
		return nil, "", err
	}
	if err := p.AwaitLog(ctx, "serving "+pseudonymZone); err != nil {
		return nil, "", err
	}
	id, err := run(site, "tenant", "key", "--identity", identity)
	if err != nil {
		return nil, "", err
	}
	if _, err := run(cloud, "tenant", "add", file, pseudonymName, "--address", netip.AddrPortFrom(pseudonymSite, pseudonymSidecar).String(), "--key", strings.TrimSpace(id)); err != nil {
		return nil, "", err
	}
	p, err = peer.Start(ctx, site, s.heddle, "pseudonym", "tenant", "run", "--zone", pseudonymZone, "--store", "10.9.1.1:4481", "--root", filepath.Join(dir, "root.pem"),
		"--identity", identity, "--to", "http://127.0.0.1:80", "--listen", fmt.Sprint(":", pseudonymSidecar), "--gateway-from", "10.9.1.1/32")
	if err != nil {
		return nil, "", err
	}
	if err := p.AwaitLog(ctx, "listening on"); err != nil {
		return nil, "", err
	}
	text, err := run(client, "get", pseudonymName, "--zone", pseudonymZone, "--root", filepath.Join(dir, "root.pem"), "--connect", netip.AddrPortFrom(pseudonymGateway, 443).String(), "--json")
	if err != nil {
		return nil, "", err
	}
	var got struct{ Name, URL, Dir string }
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		return nil, "", err
	}
	u, err := url.Parse(got.URL)
	if err != nil {
		return nil, "", err
	}
	config, err := clientTLS(got.Name, filepath.Join(dir, "root.pem"), filepath.Join(got.Dir, "cert.pem"), filepath.Join(got.Dir, "key.pem"))
	return config, "?" + u.RawQuery, err
}

// clientTLS is what a client needs for a server, with a certificate of its own if there is one.
func clientTLS(name, root, certificate, key string) (*tls.Config, error) {
	text, err := os.ReadFile(root)
	if err != nil {
		return nil, err
	}
	c := &tls.Config{ServerName: name, RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS13}
	c.RootCAs.AppendCertsFromPEM(text)
	if certificate == "" {
		return c, nil
	}
	own, err := tls.LoadX509KeyPair(certificate, key)
	c.Certificates = []tls.Certificate{own}
	return c, err
}

// fetch gets an object with a connection of its own.
func (w way) fetch(ctx context.Context, object string) error {
	var raw net.Conn
	err := w.host.Do(func() (err error) {
		raw, err = (&net.Dialer{}).DialContext(ctx, "tcp", w.at.String())
		return err
	})
	if err != nil {
		return err
	}
	defer raw.Close()
	defer context.AfterFunc(ctx, func() { raw.Close() })()
	c := tls.Client(raw, w.tls)
	if _, err := fmt.Fprintf(c, "GET /%s%s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", object, w.query, w.tls.ServerName); err != nil {
		return err
	}
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	n, err := io.Copy(io.Discard, r.Body)
	i := slices.IndexFunc(pseudonymSizes, func(s struct {
		name  string
		bytes int
	}) bool {
		return s.name == object
	})
	if err != nil || r.StatusCode != http.StatusOK || n != int64(pseudonymSizes[i].bytes) {
		return errors.Join(fmt.Errorf("%s by %s: %s, %d bytes", object, w.tls.ServerName, r.Status, n), err)
	}
	return nil
}

// fetchLatency is the median time of one fetch after another.
func fetchLatency(ctx context.Context, w way, object string, quick bool) ([]figure, error) {
	count := 200
	if quick {
		count = 50
	}
	var took []time.Duration
	for range count {
		begin := time.Now()
		if err := w.fetch(ctx, object); err != nil {
			return nil, err
		}
		took = append(took, time.Since(begin))
	}
	slices.Sort(took)
	return []figure{{"", "latency", "ms", took[len(took)/2].Seconds() * 1000}}, nil
}

// rateClients fetch at a time.
const rateClients = 8

// fetchRate counts fetches of several clients.
func fetchRate(ctx context.Context, w way, object string, quick bool) ([]figure, error) {
	long := 5 * time.Second
	if quick {
		long = 2 * time.Second
	}
	var fetched atomic.Int64
	begin := time.Now()
	var all errgroup.Group
	for range rateClients {
		all.Go(func() error {
			for time.Since(begin) < long {
				if err := w.fetch(ctx, object); err != nil {
					return err
				}
				fetched.Add(1)
			}
			return nil
		})
	}
	err := all.Wait()
	return []figure{{"", "rate", "requests/s", float64(fetched.Load()) / time.Since(begin).Seconds()}}, err
}
