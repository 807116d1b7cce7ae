package pseudonym

import (
	"embed"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"heddle/lab"
	"heddle/lab/labtest"
	"heddle/lab/peer"
)

func TestMain(m *testing.M) { labtest.Main(m) }

const (
	zone = "cloud.example"
	news = "news.example"
	shop = "shop.example"
)

// trusted is the one site whose links may lead to pseudonyms of a site.
var trusted = map[string]string{shop: news}

var gateway = netip.MustParseAddr("192.0.2.1")

//go:embed site
var siteFiles embed.FS

// cloudWorld is
//
//	client --- isp --- cloud --- news, shop
//	10.1.0.2   10.1.0.1, 192.0.2.254   192.0.2.1, 10.9.1.1, 10.9.2.1
//
// where isp is the observer, and the sites are on networks of the cloud.
func cloudWorld() lab.World {
	prefix := func(text string) []netip.Prefix { return []netip.Prefix{netip.MustParsePrefix(text)} }
	anywhere := netip.MustParsePrefix("0.0.0.0/0")
	w := lab.World{Name: "cloud", About: "a cloud with two sites, and an observer before it", Client: "client",
		Hosts: []lab.HostSpec{
			{Name: "client", Nameservers: []netip.Addr{gateway}, Routes: []lab.Route{{To: anywhere, Via: netip.MustParseAddr("10.1.0.1"), Device: "net"}}},
			{Name: "isp", Router: true},
			{Name: "cloud", Routes: []lab.Route{{To: anywhere, Via: netip.MustParseAddr("192.0.2.254"), Device: "isp"}}},
		},
		Links: []lab.LinkSpec{
			{Name: "client", A: lab.End{Host: "client", Device: "net", Addrs: prefix("10.1.0.2/24")}, B: lab.End{Host: "isp", Device: "client", Addrs: prefix("10.1.0.1/24")}},
			{Name: "cloud", A: lab.End{Host: "isp", Device: "cloud", Addrs: prefix("192.0.2.254/24")}, B: lab.End{Host: "cloud", Device: "isp", Addrs: prefix("192.0.2.1/24")}},
		}}
	for i, site := range []string{"news", "shop"} {
		network := fmt.Sprintf("10.9.%d.", i+1)
		w.Hosts = append(w.Hosts, lab.HostSpec{Name: site})
		w.Links = append(w.Links, lab.LinkSpec{Name: site, A: lab.End{Host: "cloud", Device: site, Addrs: prefix(network + "1/24")},
			B: lab.End{Host: site, Device: "cloud", Addrs: prefix(network + "2/24")}})
	}
	return w
}

// world is a cloud that runs.
type world struct {
	labtest.Overlay
	t        *testing.T
	dir      string // of the cloud's files
	sidecars map[string]*peer.Process
}

// text is what each site says.
func text(site string) string { return "this is " + site + ", and nobody else reads it" }

// newWorld is [newWorldWith] more flags for the sidecar of the news.
func newWorld(t *testing.T, flags ...string) *world {
	t.Helper()
	return newWorldWith(t, map[string][]string{news: flags})
}

// newWorldWith starts a cloud with the two sites, each a web server that knows nothing of pseudonyms. Their sidecars get some more flags.
func newWorldWith(t *testing.T, flags map[string][]string) *world {
	t.Helper()
	t.Parallel()
	w := &world{Overlay: labtest.UpOverlay(t, cloudWorld()), t: t, dir: filepath.Join(t.TempDir(), "cloud"), sidecars: map[string]*peer.Process{}}
	w.Run("cloud", "pseudonym", "init", zone, "--gateway", gateway.String(), "--dir", w.dir)
	w.Start("cloud", "serving "+zone, "pseudonym", "serve", filepath.Join(w.dir, "cloud.toml"))
	w.host(news, "news", flags[news]...)
	w.host(shop, "shop", flags[shop]...)
	return w
}

// host starts a site's server and its sidecar, and adds the site to the cloud.
func (w *world) host(site, host string, flags ...string) {
	w.t.Helper()
	root, work := w.t.TempDir(), w.t.TempDir()
	if err := os.CopyFS(root, must(fs.Sub(siteFiles, "site"))); err != nil {
		w.t.Fatal(err)
	}
	for name, content := range map[string][]byte{"index.html": []byte(text(site)), "large.bin": make([]byte, 5<<20)} {
		if err := os.WriteFile(filepath.Join(root, name), content, 0o644); err != nil {
			w.t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Dir(root), 0o755); err != nil { // the server drops its rights
		w.t.Fatal(err)
	}
	if _, err := peer.WebServer(w.t.Context(), w.Host(host), root, work, site); err != nil {
		w.t.Fatal(err)
	}
	inside := w.Host(host).Addrs()[0]
	key := strings.TrimSpace(w.Run(host, "pseudonym", "tenant", "key", "--identity", filepath.Join(work, "tenant.pem")))
	w.Run("cloud", "pseudonym", "tenant", "add", filepath.Join(w.dir, "cloud.toml"), site, "--address", netip.AddrPortFrom(inside, 4443).String(), "--key", key)
	args := []string{"pseudonym", "tenant", "run", "--zone", zone, "--store", netip.AddrPortFrom(w.cloudAt(host), 4481).String(),
		"--root", filepath.Join(w.dir, "root.pem"), "--identity", filepath.Join(work, "tenant.pem"), "--to", "http://127.0.0.1:80",
		"--gateway-from", netip.PrefixFrom(inside, 24).Masked().String()}
	if referrer := trusted[site]; referrer != "" {
		args = append(args, "--trusts", referrer)
	}
	w.sidecars[site] = w.Start(host, "listening on", append(args, flags...)...)
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// cloudAt returns the cloud's address in the network of a site.
func (w *world) cloudAt(host string) netip.Addr {
	return w.Host(host).Addrs()[0].Prev()
}

// registered is what `heddle pseudonym get --json` prints.
type registered struct {
	Name, Site, URL, Dir string
}

// curl fetches a URL with the files of a pseudonym, and returns the page and the status, 0 without an answer.
func (w *world) curl(files registered, url string, more ...string) (page string, status int, err error) {
	w.t.Helper()
	args := append([]string{"-sS", "--max-time", "20", "-w", "\n%{http_code}", "--cacert", filepath.Join(w.dir, "root.pem")}, more...)
	if files.Dir != "" {
		args = append(args, "--cert", filepath.Join(files.Dir, "cert.pem"), "--key", filepath.Join(files.Dir, "key.pem"))
	}
	out, err := w.Host("client").Command(w.t.Context(), "curl", append(args, url)...).Output()
	cut := strings.LastIndexByte(string(out), '\n')
	if cut >= 0 {
		_, _ = fmt.Sscan(string(out[cut+1:]), &status)
		page = string(out[:cut])
	}
	return page, status, err
}
