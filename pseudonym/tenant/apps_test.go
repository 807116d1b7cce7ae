package tenant

import (
	"bufio"
	"bytes"
	"crypto/sha1"
	"errors"
	"fmt"
	"mime/multipart"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"heddle/internal/polltest"
	"heddle/internal/tcptest"
	"heddle/lab/peer"
)

// freePort returns a port of the loopback that a program may listen on.
func freePort(t testing.TB) string {
	t.Helper()
	return strconv.Itoa(int(tcptest.Nobody(t).Port()))
}

// start lets a program run until the test ends, and returns what it prints. Without the program it skips the test.
func start(t testing.TB, hint, name string, args ...string) (out *bufio.Reader) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Skip("typed skip:", err, hint)
	}
	cmd := exec.Command(name, args...)
	cmd.WaitDelay = 10 * time.Second
	var talk bytes.Buffer
	cmd.Stderr = &talk
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("%s: %s", name, talk.String())
		}
	})
	return bufio.NewReader(pipe)
}

// node starts the application in testdata/app.mjs, and returns its URL.
func node(t testing.TB) string {
	t.Helper()
	out := start(t, "apt-get install nodejs", "node", "testdata/app.mjs")
	port, err := out.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return "http://127.0.0.1:" + strings.TrimSpace(port)
}

// listens awaits that something listens on a port of the loopback.
func listens(t testing.TB, port string) {
	t.Helper()
	polltest.Await(t, "something listens on "+port, func() bool {
		c, err := net.DialTimeout("tcp", "127.0.0.1:"+port, time.Second)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
}

// nginx runs until the test ends, with some servers in its configuration.
func nginx(t testing.TB, servers string) {
	t.Helper()
	p, err := peer.StartNginx(t.Context(), nil, t.TempDir(), servers)
	if errors.Is(err, peer.ErrMissing) {
		t.Skip("typed skip:", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Stop)
}

// serveFiles serves a directory by nginx, and returns its URL.
func serveFiles(t testing.TB, root string) string {
	t.Helper()
	port := freePort(t)
	nginx(t, fmt.Sprintf("server { listen 127.0.0.1:%s; root %s; }", port, root))
	listens(t, port)
	return "http://127.0.0.1:" + port
}

// An application of PHP, by PHP's own server: sessions, forms, uploads, absolute URLs.
func TestPHP(t *testing.T) {
	port := freePort(t)
	start(t, "apt-get install php-cli", "php", "-S", "127.0.0.1:"+port, "testdata/app.php")
	listens(t, port)
	v := newVisit(t, Options{}, "http://127.0.0.1:"+port).start(t)
	for _, protocol := range protocols {
		c := v.browser(t, protocol)
		r, text := v.get(t, c, "GET", "/", nil)
		own := "https://" + v.name
		if !strings.Contains(text, `srcset="`+own+`/1.png 1x, `+own+`/2.png 2x"`) || !strings.Contains(text, `action="`+own+`/login"`) || !strings.Contains(text, "Hello nobody from 127.0.0.1") {
			t.Errorf("%s: %s", protocol, text)
		}
		if cookies := fmt.Sprint(r.Cookies()); strings.Contains(cookies, "zone") || !strings.Contains(cookies, "PHPSESSID") {
			t.Errorf("%s: cookies %s", protocol, cookies)
		}
		r, _ = v.get(t, c, "POST", "/login", strings.NewReader("user=alice"), "Content-Type", "application/x-www-form-urlencoded", "Origin", own)
		if got := r.Header.Get("Location"); got != own+"/" {
			t.Errorf("%s: %s", protocol, got)
		}
		if _, text := v.get(t, c, "GET", "/", nil); !strings.Contains(text, "Hello alice") {
			t.Errorf("%s: %s", protocol, text)
		}
		var form bytes.Buffer
		w := multipart.NewWriter(&form)
		part, err := w.CreateFormFile("file", "a.bin")
		if err != nil {
			t.Fatal(err)
		}
		content := bytes.Repeat([]byte("//"+site+"\n"), 50_000)
		part.Write(content)
		w.Close()
		_, text = v.get(t, c, "POST", "/upload", &form, "Content-Type", w.FormDataContentType())
		if want := fmt.Sprintf("%d %x", len(content), sha1.Sum(content)); text != want {
			t.Errorf("%s: %s, want %s", protocol, text, want)
		}
	}
}

// Django's own administration, whose login checks a cookie, a token and the page that it came from.
func TestDjango(t *testing.T) {
	if exec.Command("/usr/bin/python3", "-c", "import django").Run() != nil {
		t.Skip("typed skip: no Django: apt-get install python3-django")
	}
	dir, port := t.TempDir(), freePort(t)
	file := filepath.Join(dir, "manage.py")
	text, err := os.ReadFile("testdata/django.py")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	start(t, "", "/usr/bin/python3", file, "127.0.0.1:"+port)
	listens(t, port)
	v := newVisit(t, Options{}, "http://127.0.0.1:"+port).start(t)
	own := "https://" + v.name
	c := v.browser(t, "h2")
	r, _ := v.get(t, c, "GET", "/admin/", nil)
	if r.StatusCode != 302 || !strings.HasPrefix(r.Header.Get("Location"), "/admin/login/") {
		t.Fatalf("%s %v", r.Status, r.Header)
	}
	_, page := v.get(t, c, "GET", "/admin/login/?next=/admin/", nil)
	_, token, _ := strings.Cut(page, `name="csrfmiddlewaretoken" value="`)
	token, _, _ = strings.Cut(token, `"`)
	login := func(referer string) *http.Response {
		r, _ := v.get(t, c, "POST", "/admin/login/?next=/admin/", strings.NewReader(url.Values{"csrfmiddlewaretoken": {token}, "username": {"alice"}, "password": {"secret"}, "next": {"/admin/"}}.Encode()),
			"Content-Type", "application/x-www-form-urlencoded", "Origin", own, "Referer", referer)
		return r
	}
	if r := login("https://shop.example/"); r.StatusCode != http.StatusForbidden {
		t.Errorf("a login by another site's page: %s", r.Status)
	}
	if r := login(own + "/admin/login/"); r.StatusCode != 302 || r.Header.Get("Location") != "/admin/" {
		t.Fatalf("%s %v", r.Status, r.Header)
	}
	if r, page := v.get(t, c, "GET", "/admin/", nil); r.StatusCode != 200 || !strings.Contains(page, "alice") || strings.Contains(page, site) {
		t.Errorf("%s %s", r.Status, page)
	}
}
