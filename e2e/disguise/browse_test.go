package disguise

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"heddle/lab/labtest"
	"heddle/lab/peer"
	"heddle/observe"
)

// fetched is an answer that curl or wget got.
type fetched struct{ head, body string }

// header returns the value of a header, or "".
func (f fetched) header(name string) string {
	if found := regexp.MustCompile(`(?im)^` + name + `: ([^\r\n]*)`).FindStringSubmatch(f.head); found != nil {
		return found[1]
	}
	return ""
}

// status is the code of the answer.
func (f fetched) status() string {
	_, rest, _ := strings.Cut(f.head, " ")
	return rest[:min(3, len(rest))]
}

// curls asks a website with curl.
func (w *bridgeWorld) curls(url string, args ...string) (f fetched) {
	w.t.Helper()
	dir := w.t.TempDir()
	head, body := filepath.Join(dir, "head"), filepath.Join(dir, "body")
	args = append([]string{"-sS", "--max-time", "120", "--interface", "home", "--insecure", "-D", head, "-o", body}, args...)
	if out, err := w.Host("client").Command(w.t.Context(), "curl", append(args, url)...).CombinedOutput(); err != nil {
		w.t.Fatalf("curl %s: %v: %s", url, err, out)
	}
	text, err := os.ReadFile(head)
	if err != nil {
		w.t.Fatal(err)
	}
	f.head = string(text)
	if text, err = os.ReadFile(body); err == nil || errors.Is(err, os.ErrNotExist) {
		f.body = string(text)
	}
	return f
}

// browsed checks that curl and wget get a page from a website, with all that HTTP has for it. The page has validators, and style.css is compressed.
func (w *bridgeWorld) browsed(at, page, text string) {
	w.t.Helper()
	whole := w.curls(at + page)
	wrong := func(what string, got fetched) {
		w.t.Helper()
		w.t.Errorf("%s%s, %s: %s%.300q", at, page, what, got.head, got.body)
	}
	if !strings.Contains(whole.body, text) || whole.status() != "200" {
		wrong("whole", whole)
	}
	if again := w.curls(at + page); again.body != whole.body || again.header("etag") != whole.header("etag") {
		wrong("again", again)
	}
	if head := w.curls(at+page, "--head"); head.status() != "200" || head.header("content-length") != fmt.Sprint(len(whole.body)) || head.header("last-modified") != whole.header("last-modified") {
		wrong("its head", head)
	}
	if part := w.curls(at+page, "--range", "2-5"); part.status() != "206" || part.body != whole.body[2:6] {
		wrong("a range", part)
	}
	for _, condition := range []string{"If-None-Match: " + whole.header("etag"), "If-Modified-Since: " + whole.header("last-modified")} {
		if same := w.curls(at+page, "-H", condition); same.status() != "304" || same.body != "" {
			wrong(condition, same)
		}
	}
	if none := w.curls(at + "/nothing"); none.status() != "404" {
		wrong("nothing", none)
	}
	plain, packed := w.curls(at+"/style.css"), w.curls(at+"/style.css", "--compressed")
	if plain.header("content-encoding") != "" || packed.header("content-encoding") != "gzip" || packed.body != plain.body || plain.body == "" {
		wrong("compressed", packed)
	}
	out, err := w.Host("client").Command(w.t.Context(), "wget", "-q", "-O", "-", "--no-check-certificate", "--tries", "1", "--timeout", "120", at+page).CombinedOutput()
	if err != nil || string(out) != whole.body {
		w.t.Errorf("wget %s%s: %v: %q", at, page, err, out)
	}
}

// spoken checks that all connections of a capture are with one server, and that all their bytes are HTTP or TLS. It returns how many came down.
func spoken(t *testing.T, file string, with netip.AddrPort, protocol string) (down int) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all, stopped, err := observe.Conversations(f)
	if err != nil || stopped != "" {
		t.Fatal(stopped, err)
	}
	for _, c := range all {
		wrong := ""
		if protocol == "https" {
			wrong = cmp.Or(records(c.Up), records(c.Down))
		} else {
			wrong = messages(c.Up, c.Down)
		}
		if c.Server != with || wrong != "" {
			t.Errorf("a connection with %v, of %d bytes up and %d down: %s", c.Server, len(c.Up), len(c.Down), wrong)
		}
		down += len(c.Down)
	}
	return down
}

// records says what in a direction of a connection is no record of TLS (RFC 8446, section 5.1). The last one may be cut.
func records(b []byte) (wrong string) {
	for at := 0; at+5 <= len(b); at += 5 + int(b[at+3])<<8 + int(b[at+4]) {
		if b[at] < 20 || b[at] > 23 || b[at+1] != 3 {
			return fmt.Sprintf("%x at %d is no record", b[at:at+5], at)
		}
	}
	return ""
}

// messages says what is no HTTP/1.1. The last request or answer may be cut.
func messages(up, down []byte) (wrong string) {
	requests, answers := bufio.NewReader(bytes.NewReader(up)), bufio.NewReader(bytes.NewReader(down))
	for {
		r, err := http.ReadRequest(requests)
		if err == nil {
			_, err = io.Copy(io.Discard, r.Body)
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return ""
		}
		if err != nil {
			return "a request: " + err.Error()
		}
		a, err := http.ReadResponse(answers, r)
		if err == nil {
			_, err = io.Copy(io.Discard, a.Body)
		}
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return ""
		}
		if err != nil {
			return "an answer: " + err.Error()
		}
	}
}

// A bridge behind nginx and in front of a site that nginx serves too. Visitors see the site as nginx itself would show it, and the network sees
// TLS with nginx. Whatever goes away, visitors see what nginx shows of any site.
func TestBridgeBehindNginx(t *testing.T) {
	cover, certificate, key := pinned(t)
	work := t.TempDir()
	socket, own := filepath.Join(work, "bridge.sock"), filepath.Join(work, "own")
	if err := os.Mkdir(own, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"about.html": "<!doctype html><title>Own</title><p>The operator's own page.\n", "style.css": strings.Repeat("body{margin:0}\n", 100)} {
		if err := os.WriteFile(filepath.Join(own, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	w := newBridgeWorld(t, append(toWeb, "--cover", "https:site="+recordedSite(t), "--behind", "unix:"+socket, "--visitor-header", "X-Forwarded-For", "--origin", "http://127.0.0.1:8080")...)
	front := peer.Front{Listen: bridgeAt, To: "http://unix:" + socket + ":", Certificate: certificate, Key: key, Work: work,
		More: "server { listen 127.0.0.1:8080; root " + own + "; gzip on; gzip_types text/css; gzip_min_length 1; }"}
	nginx, err := front.Start(t.Context(), w.Host("server"))
	if errors.Is(err, peer.ErrMissing) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	places, dir := map[string]string{"home": "home-gw/client", "lte": "lte-gw/client"}, t.TempDir()
	end := labtest.Capture(t, w.Instance, dir, places)
	dial := w.Start("client", "disguise is up", "disguise", "dial", w.client, "--listen", proxyAt, "--via", "home=if:home", "--cover", cover)
	if err := w.fetch(); err != nil {
		t.Fatalf("%v\n%s", err, dial.Log())
	}
	at := "https://" + bridgeAt.String()
	w.browsed(at, "/about.html", "own page")
	if recorded := w.curls(at + "/about"); recorded.status() != "404" {
		t.Errorf("a stranger gets a recorded page: %s%q", recorded.head, recorded.body)
	}
	end()
	if total := w.seen(dir, places, "nobody may read"); total["home"] < len(w.page) || total["lte"] > 0 {
		t.Errorf("the networks saw %v bytes", total)
	}
	if n := spoken(t, labtest.File(dir, "home"), bridgeAt, "https"); n < len(w.page) {
		t.Errorf("the connections with nginx carry %d bytes down", n)
	}
	w.bridge.Stop()
	if gone := w.curls(at + "/about.html"); gone.status() != "502" || !strings.Contains(gone.body, "nginx") {
		t.Errorf("without the bridge: %s%q", gone.head, gone.body)
	}
	nginx.Stop()
	if err := w.fetch("--max-time", "2"); err == nil {
		t.Error("a page without a bridge")
	}
}
