package bench

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"heddle/lab/browser"
	"heddle/lab/peer"
)

// pageObjects are the objects of a page like that of figure 5: thirteen of 474.3 KiB in all. The paper does not give their sizes.
var pageObjects = []struct {
	name  string
	bytes int
}{
	{"style.css", 24_000}, {"base.js", 94_000}, {"page.js", 12_000}, {"1.svg", 1_200}, {"2.svg", 2_500}, {"3.svg", 4_800}, {"4.svg", 9_000},
	{"5.svg", 15_000}, {"6.svg", 28_000}, {"7.svg", 45_000}, {"8.svg", 62_000}, {"9.svg", 80_000}, {"10.svg", 108_184},
}

const (
	pageName = "page.html"
	// pageTitle is that of the page once all its objects are there.
	pageTitle = "loaded 10 rgb(1, 2, 3) 2"
	// pageLoads are measured in each round, as many as the paper has in all.
	pageLoads, quickLoads = 20, 5
)

// writePage makes the page and its objects.
func writePage(root string) error {
	random := rand.NewChaCha8([32]byte{1})
	html := "<!DOCTYPE html>\n<html lang=\"en\"><head><title>loading</title><script>var scripts = 0</script>\n"
	for _, o := range pageObjects {
		before, after, tag := "/*", "*/", fmt.Sprintf("<script src=\"%s\"></script>\n", o.name)
		switch filepath.Ext(o.name) {
		case ".css":
			before, tag = "body{color:rgb(1,2,3)}/*", fmt.Sprintf("<link rel=\"stylesheet\" href=\"%s\">\n", o.name)
		case ".js":
			before = "scripts++;/*"
		case ".svg":
			before, after, tag = `<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><!--`, "--></svg>", fmt.Sprintf("<img src=\"%s\" alt=\"\">\n", o.name)
		}
		filler := make([]byte, o.bytes)
		_, _ = random.Read(filler) // it never fails
		content := before + base64.StdEncoding.EncodeToString(filler)[:o.bytes-len(before)-len(after)] + after
		if err := os.WriteFile(filepath.Join(root, o.name), []byte(content), 0o644); err != nil {
			return err
		}
		html += tag
	}
	html += `</head><body><p>A page of thirteen objects.</p><script>
addEventListener('load', () => { document.title = ['loaded', [...document.images].filter((i) => i.naturalWidth === 9).length,
  getComputedStyle(document.body).color, scripts].join(' ') })
</script></body></html>
`
	return os.WriteFile(filepath.Join(root, pageName), []byte(html), 0o644)
}

// addBrowsers gives the wanted ways a browser each.
func (p *pseudonymServers) addBrowsers(ctx context.Context, wanted []string) error {
	for _, name := range wanted {
		u, err := browser.NewUser(ctx, filepath.Join(p.work, "user-"+name))
		if err != nil {
			return err
		}
		u.Scripts = true
		for root, file := range map[string]string{"site": p.server, "cloud": p.cloud.Root()} {
			if err := u.Trust(ctx, root, file); err != nil {
				return err
			}
		}
		w := p.ways[name]
		own := cmp.Or(w.own, p.ways[wayGateway].own) // nobody asks for it where there is none
		certificate, key, url := own.Certificate(), own.Key(), own.To("/"+pageName)
		switch name {
		case wayHTTPS:
			url = "https://" + pseudonymName + "/" + pageName
		case wayMutual:
			certificate, key, url = p.certificate, p.key, fmt.Sprintf("https://%s:%d/%s", pseudonymName, peer.MutualPort, pageName)
		case waySidecar: // not by the gateway, which DNS names
			u.Args = []string{"--host-resolver-rules=MAP " + own.Name + " " + netip.AddrPortFrom(pseudonymSite, peer.SidecarPort).String()}
		case wayTor: // by address, since no nameserver answers the exits
			url = "https://" + pseudonymSite.String() + "/" + pageName
			u.Args = []string{fmt.Sprintf("--proxy-server=socks5://127.0.0.1:%d", peer.TorSOCKS)}
		}
		if err := u.Own(ctx, certificate, key); err != nil {
			return err
		}
		w.load = func(ctx context.Context, times int) ([]float64, error) { return p.load(ctx, u, url, times) }
		p.ways[name] = w
	}
	return nil
}

// load loads the page once that does not count, in which a browser makes connections and starts the page defence, and then some times.
func (p *pseudonymServers) load(ctx context.Context, u *browser.User, url string, times int) (took []float64, err error) {
	steps := []browser.Step{{Open: url, Title: pageTitle}}
	for i := range times {
		steps = append(steps, browser.Step{Fresh: true, Open: url, Title: pageTitle, Show: fmt.Sprint(i)})
	}
	seen, err := u.Do(ctx, p.Host("client"), steps...)
	if err != nil {
		return nil, err
	}
	for name, s := range seen {
		if s.Error != "" || !strings.HasPrefix(s.Title, pageTitle) {
			return nil, fmt.Errorf("load %s of %s: %q, %s", name, s.URL, s.Title, s.Error)
		}
		took = append(took, s.Milliseconds)
	}
	return took, nil
}

// loadPage is the median time of a page.
func loadPage(ctx context.Context, w way, quick bool) ([]figure, error) {
	times := pageLoads
	if quick {
		times = quickLoads
	}
	took, err := w.load(ctx, times)
	return []figure{{"", "load", "ms", median(took)}}, err
}
