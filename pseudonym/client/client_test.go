package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/oauth2-proxy/mockoidc"

	"heddle/internal/connlimit"
	"heddle/internal/errhint"
	"heddle/pseudonym"
	"heddle/pseudonym/audit"
	"heddle/pseudonym/ca"
	"heddle/pseudonym/cloud"
	"heddle/pseudonym/database"
	"heddle/pseudonym/store"
	"heddle/pseudonym/work"
)

// shop is a store that runs on loopback, of a cloud with one site.
type shop struct {
	*cloud.Cloud
	dir, at string
	roots   *x509.CertPool
	o       cloud.Options
}

func newShop(t *testing.T, change func(*cloud.Options)) *shop {
	t.Helper()
	s := &shop{dir: t.TempDir(), roots: x509.NewCertPool()}
	if err := cloud.Create(s.dir, zone, time.Now()); err != nil {
		t.Fatal(err)
	}
	root, err := os.ReadFile(filepath.Join(s.dir, cloud.Root))
	if err != nil || !s.roots.AppendCertsFromPEM(root) {
		t.Fatal(err)
	}
	o := cloud.Options{Zone: zone, Dir: s.dir, Database: filepath.Join(s.dir, "pseudonyms.db"), Gateways: []netip.Addr{netip.MustParseAddr("192.0.2.1")},
		Stores: []string{"127.0.0.1:1"}, Linkers: []string{"127.0.0.1:1"}, Life: 90 * 24 * time.Hour, Most: 100, Work: work.MinBits, Audit: filepath.Join(s.dir, "audit.log"), Log: slog.New(slog.DiscardHandler)}
	if change != nil {
		change(&o)
	}
	db, err := cloud.OpenDatabase(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.AddTenant(t.Context(), database.Tenant{Site: "news.example", Addresses: []string{"127.0.0.1:2"}, Client: ca.KeyID{1}, Created: time.Now()}), db.Close()); err != nil {
		t.Fatal(err)
	}
	s.o = o
	return serveShop(t, s)
}

// serveShop runs a store until the test ends.
func serveShop(t *testing.T, s *shop) *shop {
	t.Helper()
	var err error
	if s.Cloud, err = cloud.Open(t.Context(), s.o, cloud.Parts{Store: true}); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.at = l.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.ServeStore(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-served, s.Close()); err != nil {
			t.Error(err)
		}
	})
	return s
}

// client is a new person.
func (s *shop) client(t *testing.T) *Client {
	t.Helper()
	c, err := New(Options{Zone: zone, Roots: s.roots, Connect: s.at, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A person gets a pseudonym of the store and of a site, renews and revokes.
func TestClient(t *testing.T) {
	s := newShop(t, nil)
	c := s.client(t)
	got, err := c.Get(t.Context(), "News.Example")
	if err != nil || got.Site != "news.example" {
		t.Fatalf("%+v, %v", got, err)
	}
	if all, err := All(c.o.Dir); err != nil || len(all) != 2 {
		t.Errorf("%v, %v", all, err)
	}
	if again, err := c.Renew(t.Context(), "news.example"); err != nil || again.URL != got.URL || !again.key.Equal(got.key) {
		t.Errorf("%+v, %v", again, err)
	}
	if err := c.Revoke(t.Context(), "news.example"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Renew(t.Context(), "news.example"); !errors.Is(err, ErrNotSaved) {
		t.Errorf("%v", err)
	}
	if _, err := c.Get(t.Context(), "other.example"); !errors.Is(err, pseudonym.ErrNone) {
		t.Errorf("%v", err)
	}
}

// The audit log has what happened, and no names.
func TestAudit(t *testing.T) {
	file := filepath.Join(t.TempDir(), "audit.log")
	var names []string
	t.Run("serve", func(t *testing.T) {
		s := newShop(t, func(o *cloud.Options) { o.Audit = file })
		c := s.client(t)
		got, err := c.Get(t.Context(), "news.example")
		if err != nil {
			t.Fatal(err)
		}
		_, _ = c.Get(t.Context(), "other.example")
		if err := c.Revoke(t.Context(), "news.example"); err != nil {
			t.Fatal(err)
		}
		names = []string{"news", "other", "127.0.0.1", got.Name[:26], c.own.Name[:26]}
		if err := cloud.NoteTenant(cloud.Options{Audit: file, Log: slog.New(slog.DiscardHandler)}, cloud.TenantAdded, "shop.example"); err != nil {
			t.Fatal(err)
		}
	})
	found := map[string]int{}
	if _, err := audit.Read(file, time.Time{}, func(l audit.Line) error {
		found[l.Event+" "+l.Site] += l.Count
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for what, n := range map[string]int{"store_began ": 1, "registered ": 2, "refused_site ": 1, "revoked ": 1, "tenant_added shop.example": 1, "store_ended ": 1} {
		if found[what] != n {
			t.Errorf("%s: %d, want %d; %v", what, found[what], n, found)
		}
	}
	text, err := os.ReadFile(file)
	for _, name := range names {
		if err != nil || strings.Contains(string(text), name) {
			t.Errorf("it has %s: %s, %v", name, text, err)
		}
	}
}

// The client makes a proof of work by itself where one address registers a lot.
func TestClientProves(t *testing.T) {
	s := newShop(t, nil)
	for range connlimit.FailuresAtOnce + 2 {
		if _, err := s.client(t).Get(t.Context(), "news.example"); err != nil {
			t.Fatal(err)
		}
	}
	if n := s.Status().Store; n[store.Proved] == 0 || n[store.Registered] != 2*(connlimit.FailuresAtOnce+2) {
		t.Errorf("%v", n)
	}
}

var codeText = regexp.MustCompile(`id="code">([^<]+)<`)

// The client asks for a person's code where a cloud needs accounts, and needs none later.
func TestClientLogsIn(t *testing.T) {
	provider, err := mockoidc.Run()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = provider.Shutdown() })
	s := newShop(t, func(o *cloud.Options) {
		o.Login, o.Client, o.Secret = provider.Issuer(), provider.ClientID, filepath.Join(o.Dir, "secret")
		if err := os.WriteFile(o.Secret, []byte(provider.ClientSecret+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	})
	c := s.client(t)
	if _, err := c.Get(t.Context(), "news.example"); err == nil || !strings.Contains(err.Error(), "account") || errhint.Of(err) == "" {
		t.Errorf("without a person: %v", err)
	}
	asked := 0
	c.o.Login = func(ctx context.Context, page string) (string, error) {
		asked++
		return s.browse(t, page), nil
	}
	if _, err := c.Get(t.Context(), "news.example"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Renew(t.Context(), "news.example"); err != nil || asked != 1 {
		t.Errorf("asked %d times, %v", asked, err)
	}
	c = s.client(t)
	c.o.Login = func(context.Context, string) (string, error) { return "a wrong code", nil }
	if _, err := c.Get(t.Context(), "news.example"); err == nil || !strings.Contains(err.Error(), "account") {
		t.Errorf("with a wrong code: %v", err)
	}
}

// browse logs in with a browser, and returns the code that the page shows.
func (s *shop) browse(t *testing.T, page string) string {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		if strings.HasPrefix(address, zone.Store()) {
			address = s.at
		}
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
	by := &http.Client{Jar: jar, Transport: &http.Transport{DialContext: dial, TLSClientConfig: &tls.Config{RootCAs: s.roots, MinVersion: tls.VersionTLS13}}}
	defer by.CloseIdleConnections()
	r, err := by.Get(page)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	found := codeText.FindSubmatch(text)
	if found == nil {
		t.Fatalf("%s", text)
	}
	return string(found[1])
}
