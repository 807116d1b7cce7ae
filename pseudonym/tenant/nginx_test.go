package tenant

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"heddle/internal/polltest"
	"heddle/pseudonym"
	"heddle/pseudonym/ca"
	"heddle/pseudonym/ca/catest"
	"heddle/pseudonym/mutual"
)

// shelf is a store of some pseudonyms.
type shelf struct {
	mu      sync.Mutex
	entries map[pseudonym.Label]*mutual.Entry
	changes chan pseudonym.Label
	at      string // where gateways find them
}

func (s *shelf) remove(l pseudonym.Label) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.entries, l)
}

func (s *shelf) put(e *mutual.Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entries[e.Label] = e
}

func (s *shelf) Pseudonym(_ context.Context, l pseudonym.Label) (*mutual.Entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.entries[l]; e != nil {
		return e, nil
	}
	return nil, pseudonym.ErrNone
}

func (s *shelf) labels(context.Context, time.Time) (all []pseudonym.Label, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for l := range s.entries {
		all = append(all, l)
	}
	return append(all, "../../evil"), nil
}

func (s *shelf) follow(ctx context.Context, forget func(pseudonym.Label)) {
	for {
		select {
		case l := <-s.changes:
			forget(l)
		case <-ctx.Done():
			return
		}
	}
}

// newNginxVisit lets Debian's nginx serve a site in place of a sidecar.
func newNginxVisit(t testing.TB, to string) (*visit, *shelf) {
	t.Helper()
	dir, port := filepath.Join(t.TempDir(), "heddle"), freePort(t)
	v := &visit{keys: newKeys(t), at: "127.0.0.1:" + port, near: "127.0.0.1:" + freePort(t), intro: "PROXY TCP4 198.51.100.7 127.0.0.1 1234 4443\r\n"}
	s := &shelf{entries: map[pseudonym.Label]*mutual.Entry{v.Label: v.Entry}, changes: make(chan pseudonym.Label)}
	o := Options{Zone: zone, Size: 10, Log: slog.New(slog.DiscardHandler), Gateways: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
	var err error
	if o.To, err = url.Parse(to); err != nil {
		t.Fatal(err)
	}
	n, err := newNginx(o, NginxAt{Site: site, Dir: dir, Listen: v.at, ListenV6: v.near}, s, func(string) bool { return false })
	if err != nil {
		t.Fatal(err)
	}
	n.every = 10 * time.Millisecond
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan bool), make(chan error, 1)
	go func() { ended <- n.Serve(ctx, func() { close(ready) }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	<-ready
	nginx(t, "include "+dir+"/nginx.conf;")
	listens(t, port)
	return v, s
}

// nothing reports whether a client gets no byte of HTTP, with its certificate, for a name.
func (v *visit) nothing(t *testing.T, config *tls.Config, host, target string) bool {
	t.Helper()
	c, err := v.dialAs(t, config)
	if err != nil {
		return true
	}
	fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", target, host)
	text, _ := io.ReadAll(c)
	return len(text) == 0
}

// Debian's nginx serves pseudonyms by the configuration that is made for it: to the client of each alone, as the site's own name.
func TestNginx(t *testing.T) {
	at := node(t)
	v, s := newNginxVisit(t, at)
	query := pseudonym.CapabilityKey + "=" + v.Capability.String()
	for _, protocol := range protocols {
		c := v.browser(t, protocol)
		r, text := v.get(t, c, "GET", "/?"+query, nil)
		if want := `<a href="https://` + v.name + `/next">next</a><form action="http://` + v.name + `/form" method="post"></form>`; text != want {
			t.Errorf("%s: %q", protocol, text)
		}
		if cookies := r.Cookies(); len(cookies) != 1 || cookies[0].Name != mutual.CookieName || !cookies[0].HttpOnly || r.Header.Get("Referrer-Policy") != "same-origin" {
			t.Errorf("%s: %v", protocol, r.Header)
		}
		_, text = v.get(t, c, "GET", "/headers?a=%2F&"+query+"&b", nil, "Origin", "https://"+v.name, "Referer", "https://"+v.name+"/x", "X-Forwarded-For", "203.0.113.9", "Heddle-Uri", "/evil", "Cookie", "own=1")
		lower := map[string]string{}
		if err := json.Unmarshal([]byte(text), &lower); err != nil {
			t.Fatal(err)
		}
		for key, want := range map[string]string{"host": site, "origin": "https://" + site, "referer": "https://" + site + "/x", "x-forwarded-for": "198.51.100.7", "cookie": "own=1"} {
			if lower[key] != want {
				t.Errorf("%s: %s is %q, want %q", protocol, key, lower[key], want)
			}
		}
		if all := v.behind(t, at); !slices.Contains(all, "GET /headers?a=%2F&b") || strings.Contains(fmt.Sprint(all), v.Capability.String()) {
			t.Errorf("%s: the site saw %q", protocol, all)
		}
		r, _ = v.get(t, c, "POST", "/form", strings.NewReader("a=b"))
		if got := r.Header.Get("Location"); got != "https://"+v.name+"/done" || !strings.Contains(fmt.Sprint(r.Header["Set-Cookie"]), "session=1") || strings.Contains(fmt.Sprint(r.Header["Set-Cookie"]), site) {
			t.Errorf("%s: %v", protocol, r.Header)
		}
		if _, text := v.get(t, c, "PUT", "/upload", strings.NewReader(strings.Repeat("x", 3<<20))); !strings.HasPrefix(text, "3145728 ") {
			t.Errorf("%s: %q", protocol, text)
		}
		c.Jar = nil
		if r, _ := v.get(t, c, "GET", "/", nil); r.StatusCode != http.StatusNotFound {
			t.Errorf("%s: without the capability: %s", protocol, r.Status)
		}
	}
	socket := v.socket(t, "/socket")
	io.WriteString(socket, "hello")
	got := make([]byte, 5)
	if _, err := io.ReadFull(socket, got); err != nil || string(got) != "hello" {
		t.Errorf("%q, %v", got, err)
	}

	otherKey := catest.NewKey(t)
	other, err := ca.Client(v.name, otherKey, time.Now(), v.Expires)
	if err != nil {
		t.Fatal(err)
	}
	certificate := func(c ...tls.Certificate) *tls.Config {
		config := v.config()
		config.Certificates = c
		return config
	}
	unknown := v.config()
	unknown.ServerName = zone.Name(pseudonym.NewLabel())
	plain := v.config()
	plain.ServerName, plain.InsecureSkipVerify = site, true
	for name, nothing := range map[string]bool{
		"no certificate":         v.nothing(t, certificate(), v.name, "/?"+query),
		"another client":         v.nothing(t, certificate(tls.Certificate{Certificate: [][]byte{other.Raw}, PrivateKey: otherKey}), v.name, "/?"+query),
		"another host":           v.nothing(t, v.config(), unknown.ServerName, "/?"+query),
		"the site's own name":    v.nothing(t, v.config(), site, "/?"+query),
		"a name that nobody has": v.nothing(t, unknown, unknown.ServerName, "/?"+query),
		"the plain name in TLS":  v.nothing(t, plain, site, "/?"+query),
	} {
		if !nothing {
			t.Errorf("%s: there is an answer", name)
		}
	}
	if v.nothing(t, v.config(), v.name, "/?"+query) {
		t.Error("the pseudonym's own client gets nothing")
	}

	// A pseudonym that is new works soon, and one that ended does not, also in a connection that is open.
	second := newKeys(t)
	s.put(second.Entry)
	later := &visit{keys: second, at: v.at, intro: v.intro}
	polltest.Await(t, "the new pseudonym works", func() bool {
		return !later.nothing(t, later.config(), later.name, "/?"+pseudonym.CapabilityKey+"="+second.Capability.String())
	})
	open := v.browser(t, "http/1.1")
	v.get(t, open, "GET", "/", nil)
	s.remove(v.Label)
	s.changes <- v.Label
	polltest.Await(t, "the pseudonym ends", func() bool {
		r, err := open.Get("https://" + v.name + "/")
		if err == nil {
			r.Body.Close()
		}
		return err != nil
	})
	polltest.Await(t, "no handshake shows that it was there", func() bool {
		_, err := v.dialAs(t, v.config())
		return err != nil
	})
}
