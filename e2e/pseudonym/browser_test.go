package pseudonym

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"heddle/internal/polltest"
	"heddle/lab/browser"
	"heddle/lab/labtest"
	"heddle/lab/peer"
)

// step and page are what the user does, and sees.
type (
	step = browser.Step
	page = browser.Seen
)

// chromium is the browser of one user, with her certificates and her profile.
type chromium struct {
	*world
	*browser.User
}

// shots is where a person wants pictures of the pages, for the documentation.
var shots = os.Getenv("HEDDLE_TEST_SHOTS")

func (w *world) chromium() *chromium {
	w.t.Helper()
	u, err := browser.NewUser(w.t.Context(), w.t.TempDir())
	if errors.Is(err, peer.ErrMissing) {
		w.t.Skip("typed skip:", err)
	}
	if err == nil {
		err = u.Trust(w.t.Context(), zone, w.cloud.Root())
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return &chromium{w, u}
}

// register gets a pseudonym of each site by the store's pages. It returns the pages that show them, and a function that makes URLs by these pseudonyms.
func (c *chromium) register() (made map[string]page, to func(site, path string) string) {
	c.t.Helper()
	made = map[string]page{}
	for _, site := range []string{news, shop} {
		made[site] = c.do(step{Open: "https://store." + zone + "/"}, step{Register: site, Show: "made"})["made"]
		c.take(made[site])
	}
	return made, func(site, path string) string { return strings.Replace(made[site].Links[site], "/?", path+"?", 1) }
}

// take imports what a page gave the user.
func (c *chromium) take(p page) {
	c.t.Helper()
	if err := c.Take(c.t.Context(), p); err != nil {
		c.t.Fatal(err)
	}
}

// do starts the browser for some steps.
func (c *chromium) do(steps ...step) map[string]page {
	c.t.Helper()
	for i := range steps {
		if steps[i].Shot != "" && shots == "" {
			steps[i].Shot = ""
		} else if steps[i].Shot != "" {
			steps[i].Shot = filepath.Join(shots, steps[i].Shot)
		}
	}
	seen, err := c.Do(c.t.Context(), c.Host("client"), steps...)
	if err != nil {
		c.t.Fatal(err)
	}
	return seen
}

// A user with Chromium alone, without scripts, gets pseudonyms by the store's pages, imports their certificates, visits a site, follows
// a link to another one, and revokes. The observer sees neither site.
func TestChromium(t *testing.T) {
	w := newWorld(t)
	c := w.chromium()
	dir := t.TempDir()
	end := labtest.Capture(t, w.Instance, dir, map[string]string{"isp": "isp/client"})

	first := c.do(step{Open: "https://store." + zone + "/", Shot: "store.png"}, step{Register: news, Show: "made", Shot: "made.png"})["made"]
	if len(first.Files) != 2 || first.Passphrase == "" || first.Links[news] == "" {
		t.Fatalf("%+v", first)
	}
	c.take(first)
	// She comes by her own pseudonym of the store from now on.
	entrance := first.Links["your entrance to this store"]
	second := c.do(step{Open: entrance, Show: "home"}, step{Register: shop, Show: "made"})
	if home := second["home"]; !strings.Contains(home.Text, news) || strings.Contains(home.Text, "been here before") {
		t.Fatalf("%+v", home)
	}
	if made := second["made"]; len(made.Files) != 1 || made.Links[shop] == "" {
		t.Fatalf("%+v", made)
	}
	c.take(second["made"])

	to := func(link, path string) string { return strings.Replace(link, "/?", path+"?", 1) }
	w.awaitLinks()
	seen := c.do(
		step{Open: first.Links[news], Show: "news"},
		step{Open: to(first.Links[news], "/links.html"), Show: "links"},
		step{Click: "to the shop", Show: "shop"},
		step{Open: to(first.Links[news], "/links.html")},
		step{Click: "to a hidden page", Show: "page"},
		step{Open: to(first.Links[news], "/links.html")},
		step{Click: "to a page that moved", Show: "moved"},
		step{Open: to(second["made"].Links[shop], "/links.html")},
		step{Click: "to the news", Show: "untrusted", Shot: "linker.png"},
		step{Open: entrance, Shot: "list.png"},
		step{Click: "Revoke the pseudonym of " + shop, Show: "sure"},
		step{Click: "Revoke it", Show: "revoked"},
		step{Gone: second["made"].Links[shop], Show: "gone"},
		step{Open: to(first.Links[news], "/links.html")},
		step{Click: "to the shop", Show: "none"},
	)
	end()
	at := strings.SplitN(second["made"].Links[shop], "/?", 2)[0]
	for name, check := range map[string]func(page) bool{
		"news":  func(p page) bool { return p.Text == text(news) },
		"links": func(p page) bool { return strings.HasPrefix(p.Links["to the shop"], "https://linker."+zone+"/?") },
		"shop":  func(p page) bool { return p.Text == text(shop) && strings.HasPrefix(p.URL, at+"/?") },
		"page": func(p page) bool {
			return strings.TrimSpace(p.Text) == "hidden" && strings.HasPrefix(p.URL, at+"/page.html?")
		},
		"moved": func(p page) bool {
			return strings.TrimSpace(p.Text) == "nineteen" && strings.HasPrefix(p.URL, at+"/sub/")
		},
		"untrusted": func(p page) bool {
			return strings.Contains(p.Text, "trusts") && p.Links["Go on by the plain name"] == "https://"+news+"/"
		},
		"sure": func(p page) bool { return strings.Contains(p.Title, shop) },
		"revoked": func(p page) bool {
			return strings.Contains(p.Text, news) && !strings.Contains(p.Text, at[len("https://"):])
		},
		"gone": func(p page) bool { return p.Error != "" },
		"none": func(p page) bool { return strings.Contains(p.Text, "no pseudonym of "+shop) },
	} {
		if !check(seen[name]) {
			t.Errorf("%s: %+v", name, seen[name])
		}
	}
	if t.Failed() {
		for site, p := range w.sidecars {
			t.Logf("%s: %s", site, p.Log())
		}
	}
	captured, err := os.ReadFile(labtest.File(dir, "isp"))
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{news, shop, "nobody else reads", "hidden"} {
		if bytes.Contains(captured, []byte(secret)) {
			t.Errorf("the observer sees %q", secret)
		}
	}
}

// awaitLinks waits until the sidecar of the news knows that the cloud has the shop, and the cloud that the shop trusts the news.
func (w *world) awaitLinks() {
	w.t.Helper()
	r := w.get(news)
	var links []string
	polltest.Await(w.t, "links to the shop lead to the linker", func() bool {
		page, _, err := w.curl(r, strings.Replace(r.URL, "/?", "/links.html?", 1))
		links = toLinker.FindAllString(page, -1)
		return err == nil && len(links) == 3
	})
	// The linker knows a person by her pseudonym of the store.
	entrance := registered{Dir: filepath.Join(filepath.Dir(r.Dir), "store."+zone)}
	polltest.Until(w.t, func() error {
		page, _, err := w.curl(entrance, html.UnescapeString(links[0]))
		if err != nil || !strings.Contains(page, "no pseudonym of "+shop) {
			return fmt.Errorf("the linker does not know that the shop trusts the news: %v, %s", err, page)
		}
		return nil
	})
}

var toLinker = regexp.MustCompile(`https://linker\.` + regexp.QuoteMeta(zone) + `[^"]*`)

// workerScript is the path of the Service Worker.
const workerScript = "/.well-known/heddle/worker.js"

// rich is the title of rich.html once it has loaded all.
var rich = fmt.Sprintf("loaded: rgb(1, 2, 3) 7 3 11 thirteen 17 5242880 nineteen 404 206 %d", fontAdvance/10)

// With the page defence Chromium loads all that a page needs as it does without, and all but the worker and large objects in pieces.
func TestPageDefence(t *testing.T) {
	w := newWorld(t, "--defence", "pieces")
	c := w.chromium()
	c.Scripts = true
	made, to := c.register()
	exchanges := c.logNet()
	seen := c.do(
		step{Open: to(shop, "/rich.html"), Title: "loaded", Show: shop},
		step{Open: to(news, "/rich.html"), Title: "loaded", Show: news},
		step{Open: to(news, "/rich.html"), Title: "loaded", Show: "again"},
		step{Open: to(news, "/page.html"), Show: "page"},
	)
	for _, name := range []string{shop, news, "again"} {
		if seen[name].Title != rich {
			t.Errorf("%s: %+v", name, seen[name])
		}
	}
	if strings.TrimSpace(seen["page"].Text) != "hidden" {
		t.Errorf("%+v", seen["page"])
	}
	objects := w.inPieces(exchanges(), host(made[news].Links[news]), map[string]string{
		"/rich.html": "document", "/page.html": "document", "/rich.css": "style", "/rich.svg": "image", "/back.svg": "image", "/rich.ttf": "font", "/rich.js": "script",
		"/rich-module.js": "script", "/rich.json": "empty", "/rich.txt": "empty", "/large.bin": "empty", "/sub": "empty", "/sub/": "empty", "/none": "empty", "/favicon.ico": "image",
	})
	w.awaitCost("news", func(c cost) bool {
		return c.Objects == objects && c.Pieces >= c.Objects && c.Content >= 2*5<<20 && c.Sent > c.Content
	})
}

// inPieces checks that Chromium fetched what a page defence with pieces covers in no other way, and returns how many objects that were. want has their
// paths, and for which kind of use each was.
func (w *world) inPieces(all []*exchange, host string, want map[string]string) int {
	w.t.Helper()
	type object struct {
		path   string
		pieces []string
		count  int
	}
	objects, boots := map[string]*object{}, 0 // by the id of the load
	for _, e := range all {
		path, _, _ := strings.Cut(e.path, "?")
		if e.host != host || path == workerScript {
			continue
		}
		piece := strings.Fields(e.asked["heddle-piece"])
		if load := strings.Fields(e.answered["heddle-load"]); len(load) == 2 { // the browser's own request for a page
			piece = []string{load[0], load[1], "0000", e.asked["sec-fetch-mode"], e.asked["sec-fetch-dest"]}
		}
		if len(piece) == 0 { // the part of a text, and the page that starts the worker
			if e.asked["range"] == "" && (e.asked["sec-fetch-dest"] != "document" || boots > 0) {
				w.t.Errorf("not in pieces: %v", e)
			} else if e.asked["range"] == "" {
				boots++
			}
			continue
		}
		o := objects[piece[0]]
		if o == nil {
			o = &object{path: path}
			objects[piece[0]] = o
		}
		o.count = must(strconv.Atoi(piece[1]))
		if !slices.Contains(o.pieces, piece[2]) { // a browser sends a request again if a connection breaks off
			o.pieces = append(o.pieces, piece[2])
		}
		if o.path != path || want[path] != piece[4] {
			w.t.Errorf("a piece of %s for %s: %v", path, want[path], piece)
		}
		if path != "/large.bin" && (e.bytes == 0 || e.bytes%512 != 0 || e.answered["heddle-piece"] != "0001") {
			w.t.Errorf("no padded piece: %v", e)
		}
	}
	found := map[string]bool{}
	for id, o := range objects {
		found[o.path] = true
		if len(o.pieces) != o.count {
			w.t.Errorf("%s %s: %v of %d pieces", o.path, id, o.pieces, o.count)
		}
	}
	for path := range want {
		if !found[path] {
			w.t.Errorf("%s did not come in pieces", path)
		}
	}
	return len(objects)
}

// host returns that of a URL.
func host(link string) string { return must(url.Parse(link)).Host }

// cost is what the defence of a site's pages cost.
type cost struct {
	Objects int   `json:"objects"`
	Pieces  int   `json:"pieces"`
	Content int64 `json:"content_bytes"`
	Sent    int64 `json:"sent_bytes"`
}

func (w *world) cost(host string) cost {
	w.t.Helper()
	var status struct {
		Running []struct {
			Tenant struct {
				Defence *cost  `json:"defence"`
				Claim   string `json:"claim"`
			} `json:"tenant"`
		} `json:"running"`
	}
	out := w.Run(host, "status", "--json")
	if err := json.Unmarshal([]byte(out), &status); err != nil || len(status.Running) != 1 || status.Running[0].Tenant.Defence == nil {
		w.t.Fatalf("%v: %s", err, out)
	}
	if claim := status.Running[0].Tenant.Claim; !strings.HasPrefix(claim, "the first visit") {
		w.t.Errorf("the sidecar claims %q", claim)
	}
	return *status.Running[0].Tenant.Defence
}

// awaitCost waits for a cost. The sidecar counts an object once its last byte is sent, when Chromium may have it.
func (w *world) awaitCost(host string, is func(cost) bool) {
	w.t.Helper()
	polltest.Until(w.t, func() error {
		if c := w.cost(host); !is(c) {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
}

// The other strategies load the same in Chromium. With site-constant all pages have the same number of pieces of one size, whatever they
// need, and those without content do not all come at the end. A user may go on without a defence.
func TestOtherDefences(t *testing.T) {
	w := newWorldWith(t, map[string][]string{news: {"--defence", "site-constant"}, shop: {"--defence", "pad-pow2"}})
	c := w.chromium()
	c.Scripts = true
	_, to := c.register()
	seen := c.do(step{Open: to(shop, "/rich.html"), Title: "loaded", Show: shop})
	if seen[shop].Title != rich {
		t.Errorf("%+v", seen[shop])
	}
	w.awaitCost("shop", func(c cost) bool { return c.Objects >= 10 && c.Sent > c.Content })
	// had does steps, each of which opens a page, and returns how many pieces the pages had. The sidecar sent as many, but for one time in the whole
	// test: a browser sends a request again if a connection breaks off.
	again := false
	had := func(steps ...step) (map[string]page, []int) {
		for ; ; again = true {
			before := w.cost("news").Pieces
			seen := c.do(steps...)
			had, sum := seen[steps[len(steps)-1].Show].Had, 0
			if len(had) != len(steps) {
				t.Fatalf("%+v", seen)
			}
			for _, n := range had {
				sum += n
			}
			sent := w.cost("news").Pieces - before
			if sent == sum {
				return seen, had
			} else if again {
				t.Fatalf("the pages had %v pieces, and the sidecar sent %d", had, sent)
			}
			t.Logf("the pages had %v pieces, and the sidecar sent %d: once more", had, sent)
		}
	}
	// The worker learns how many pieces a page needs. A busy machine loads some so late that the page has more in the end.
	alike := func(steps ...step) map[string]page {
		for try := 1; ; try++ {
			seen, all := had(steps...)
			if all = all[1:]; slices.Min(all) == slices.Max(all) {
				return seen
			} else if try == 20 {
				t.Fatalf("the pages had %v pieces", all)
			}
		}
	}
	seen = alike(
		step{Open: to(news, "/rich.html"), Title: "loaded", Show: "rich", Settled: true},
		step{Open: to(news, "/page.html"), Show: "page", Settled: true},
		step{Open: to(news, "/links.html"), Show: "links", Settled: true},
		step{Open: to(news, "/rich.html"), Title: "loaded", Show: "again", Settled: true},
	)
	if seen["again"].Title != rich || strings.TrimSpace(seen["page"].Text) != "hidden" {
		t.Errorf("%+v", seen)
	}
	// Nor does it show a page that the sidecar knows when it loads slowly.
	alike(
		step{Open: to(news, "/gaps.html"), Title: "loaded", Show: "fast", Settled: true},
		step{Open: to(news, "/page.html"), Show: "page", Settled: true},
		step{Open: to(news, "/gaps.html") + "#400", Title: "loaded", Show: "slow", Settled: true},
	)
	// A page that loads more once it had all its pieces does not change how many others have.
	late := []step{{Open: to(news, "/page.html"), Show: "before", Settled: true}}
	for range 3 {
		late = append(late, step{Open: to(news, "/late.html"), Title: "loaded", Show: "late", Settled: true})
	}
	seen, all := had(append(late, step{Open: to(news, "/page.html"), Show: "after", Settled: true})...)
	if before, after := all[0], all[len(all)-1]; after > before || slices.Max(all) == before {
		t.Errorf("pages had %v pieces", all)
	}
	// No pause shows what a page needs, if somebody has opened it before.
	if late := seen["after"].Late; late[len(late)-1] > all[len(all)-1]/2 {
		t.Errorf("of %v pieces of pages, %v without content came after a pause", all, late)
	}
	pieces := w.cost("news").Pieces
	seen = c.do(step{Open: to(news, "/.well-known/heddle/plain"), Show: "plain"}, step{Open: to(news, "/page.html"), Show: "page"})
	if cost := w.cost("news"); strings.TrimSpace(seen["page"].Text) != "hidden" || cost.Pieces != pieces {
		t.Errorf("without the defence: %+v, %+v", seen["page"], cost)
	}
}

// With the page defence a WebSocket, events and an upload of an application pass in Chromium. A password that browsers ask for does not: the page
// says so, and the user goes on without the defence.
func TestDefenceOfAnApplication(t *testing.T) {
	const port = "8080"
	w := newWorldWith(t, map[string][]string{news: {"--to", "http://127.0.0.1:" + port, "--defence", "pieces"}})
	c := w.chromium()
	c.Scripts = true
	if _, err := peer.Start(t.Context(), w.Host("news"), "node", "../../pseudonym/tenant/testdata/app.mjs", port); err != nil {
		t.Fatal(err)
	}
	made := c.do(step{Open: "https://store." + zone + "/"}, step{Register: news, Show: "made"})["made"]
	c.take(made)
	to := func(path string) string { return strings.Replace(made.Links[news], "/?", path+"?", 1) }
	seen := c.do(
		step{Open: to("/live"), Title: "live", Show: "live"},
		step{Open: to("/login"), Show: "login"},
	)
	if got := seen["live"].Title; got != "live: hello, first second, 20000000" {
		t.Errorf("%s", got)
	}
	if login := seen["login"]; !strings.Contains(login.Text, "asks for a password") || !strings.Contains(login.Links["go on without that"], "/.well-known/heddle/plain?to=%2Flogin") {
		t.Errorf("%+v", login)
	}
	w.awaitCost("news", func(c cost) bool { return c.Objects >= 2 })
}
