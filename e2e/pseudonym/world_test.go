package pseudonym

import (
	"embed"
	"fmt"
	"io/fs"
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
	zone = peer.CloudZone
	news = "news.example"
	shop = "shop.example"
)

// trusted is the one site whose links may lead to pseudonyms of a site.
var trusted = map[string]string{shop: news}

var gateway = lab.CloudGateway

//go:embed site
var siteFiles embed.FS

// world is a cloud that runs, with the router isp as its observer.
type world struct {
	labtest.Overlay
	t        *testing.T
	cloud    *peer.Cloud
	dir      string // of the cloud's files
	sidecars map[string]*peer.Process
	handoff  string // begins the addresses of agents, other than handoff:
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
	w := &world{Overlay: labtest.UpOverlay(t, lab.Cloud("cloud", "news", "shop")), t: t, dir: filepath.Join(t.TempDir(), "cloud"), sidecars: map[string]*peer.Process{}}
	var err error
	if w.cloud, err = peer.StartCloud(t.Context(), w.Overlay.Overlay, w.dir, gateway); err != nil {
		t.Fatal(err)
	}
	w.host(news, "news", flags[news]...)
	w.host(shop, "shop", flags[shop]...)
	return w
}

// webServer starts a site's server.
func (w *world) webServer(site, host string) {
	w.t.Helper()
	root, work := w.t.TempDir(), w.t.TempDir()
	if err := os.CopyFS(root, must(fs.Sub(siteFiles, "site"))); err != nil {
		w.t.Fatal(err)
	}
	for name, content := range map[string][]byte{"index.html": []byte(text(site)), "large.bin": make([]byte, 5<<20), "rich.ttf": font()} {
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
}

// host starts a site's server and its sidecar, and adds the site to the cloud.
func (w *world) host(site, host string, flags ...string) {
	w.t.Helper()
	w.webServer(site, host)
	if referrer := trusted[site]; referrer != "" {
		flags = append(flags, "--trusts", referrer)
	}
	p, err := w.cloud.Add(w.t.Context(), w.cloud.At(host, site, w.Host(host).Addrs()[0], flags...))
	if err != nil {
		w.t.Fatal(err)
	}
	w.sidecars[site] = p
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// registered is a pseudonym of the client's.
type registered = peer.Pseudonym

// curl fetches a URL with the files of a pseudonym, and returns the page and the status, 0 without an answer.
func (w *world) curl(files registered, url string, more ...string) (page string, status int, err error) {
	w.t.Helper()
	args := append([]string{"-sS", "--max-time", "60", "-w", "\n%{http_code}", "--cacert", w.cloud.Root()}, more...)
	if files.Dir != "" {
		args = append(args, files.Files()...)
	}
	out, err := w.Host("client").Command(w.t.Context(), "curl", append(args, url)...).Output()
	cut := strings.LastIndexByte(string(out), '\n')
	if cut >= 0 {
		_, _ = fmt.Sscan(string(out[cut+1:]), &status)
		page = string(out[:cut])
	}
	return page, status, err
}
