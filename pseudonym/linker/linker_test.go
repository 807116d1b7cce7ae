package linker

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"heddle/pseudonym"
	"heddle/pseudonym/ca"
	"heddle/pseudonym/ca/catest"
	"heddle/pseudonym/database"
	"heddle/pseudonym/store"
)

const (
	zone = pseudonym.Zone("cloud.example")
	news = "news.example"
	shop = "shop.example"
	bank = "bank.example"
)

// street is a cloud of three sites, where the shop trusts the news.
type street struct {
	*Linker
	t     testing.TB
	db    *database.DB
	store *store.Store
}

func newStreet(t testing.TB) *street {
	t.Helper()
	issuer, root := catest.NewIssuer(t, string(zone))
	seal, err := database.NewSeal(make([]byte, database.SealKeySize))
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	db, err := database.Open(t.Context(), filepath.Join(t.TempDir(), "pseudonyms.db"), seal, log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	s := &street{New(zone, db, log), t, db, store.New(store.Options{Zone: zone, Database: db, Issuer: issuer, Root: root.Raw, Life: time.Hour, Most: 100, Log: log})}
	for i, site := range []string{news, shop, bank, zone.Store()} {
		if err := db.AddTenant(t.Context(), database.Tenant{Site: site, Addresses: []string{"10.0.0.1:4443"}, Client: ca.KeyID{byte(i)}, Created: time.Now()}); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.PutTrust(t.Context(), shop, []string{news}); err != nil {
		t.Fatal(err)
	}
	return s
}

// person has pseudonyms of some sites, and a browser with the certificate of the cloud.
type person struct {
	browser *x509.Certificate
	names   map[string]database.Pseudonym
}

func (s *street) person(sites ...string) person {
	s.t.Helper()
	cert, err := ca.Browser(zone.Store(), string(zone), catest.NewKey(s.t), time.Now(), time.Now().Add(time.Hour))
	if err != nil {
		s.t.Fatal(err)
	}
	p, owner := person{cert, map[string]database.Pseudonym{}}, pseudonym.NewOwner()
	for _, site := range append(sites, zone.Store()) {
		client := ca.KeyOfPublic(owner[:])
		if site == zone.Store() {
			client = ca.KeyOf(cert)
		}
		r, err := s.store.Register(s.t.Context(), site, client, owner)
		if err != nil {
			s.t.Fatal(err)
		}
		l, _ := zone.Label(r.Name)
		if p.names[site], err = s.db.Get(s.t.Context(), l); err != nil {
			s.t.Fatal(err)
		}
	}
	return p
}

// link is in a page that a person got from a site.
func (p person) link(from, to string) pseudonym.Link {
	return pseudonym.NewLink(to, p.names[from].Label, p.names[from].Capability)
}

// follow is what a browser does. browser may be nil.
func (s *street) follow(l pseudonym.Link, browser *x509.Certificate, edit func(*http.Request)) *http.Response {
	r := httptest.NewRequest(http.MethodGet, l.URL(zone), nil)
	r.TLS = &tls.ConnectionState{ServerName: zone.Linker()}
	if browser != nil {
		r.TLS.PeerCertificates = []*x509.Certificate{browser}
	}
	if edit != nil {
		edit(r)
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w.Result()
}

func text(t *testing.T, r *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// The user of pseudonyms of both sites comes to her own pseudonym, at the page that the link names.
func TestLeadsToThePseudonym(t *testing.T) {
	s := newStreet(t)
	alice := s.person(news, shop)
	at := alice.names[shop]
	for to, want := range map[string]string{
		"https://shop.example":              "/?" + query(at),
		"https://Shop.Example./a%2Fb?x=1#y": "/a%2Fb?x=1&" + query(at) + "#y",
		"http://shop.example/?x":            "/?x&" + query(at),
	} {
		r := s.follow(alice.link(news, to), alice.browser, nil)
		if got := r.Header.Get("Location"); r.StatusCode != http.StatusSeeOther || got != "https://"+zone.Name(at.Label)+want {
			t.Errorf("%s: %s %s, want %s", to, r.Status, got, want)
		}
		if r.Header.Get("Referrer-Policy") != "no-referrer" || r.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%v", r.Header)
		}
	}
}

func query(p database.Pseudonym) string { return pseudonym.CapabilityKey + "=" + p.Capability.String() }

// Nobody else is led to a pseudonym, whatever part of the policy fails, and no user of pseudonyms to a plain name without being asked.
func TestPolicy(t *testing.T) {
	s := newStreet(t)
	alice, bob := s.person(news, shop), s.person(news, shop, bank)
	carol := s.person(news)
	stranger, err := ca.Browser(zone.Store(), string(zone), catest.NewKey(t), time.Now(), time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	const to = "https://shop.example/a"
	good := alice.link(news, to)
	with := func(edit func(*pseudonym.Link)) pseudonym.Link {
		l := good
		edit(&l)
		return l
	}
	ended := s.person(news, shop)
	if err := s.store.Revoke(t.Context(), zone.Name(ended.names[news].Label), ended.names[news].Owner); err != nil {
		t.Fatal(err)
	}
	gone := s.person(news, shop)
	if err := s.store.Revoke(t.Context(), zone.Name(gone.names[shop].Label), gone.names[shop].Owner); err != nil {
		t.Fatal(err)
	}
	left := s.person(news, shop)
	if err := s.store.Revoke(t.Context(), zone.Name(left.names[zone.Store()].Label), left.names[zone.Store()].Owner); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		link    pseudonym.Link
		browser *x509.Certificate
		says    string // in a page that asks; empty for a way on by the plain name
	}{
		"the site follows its own link":         {good, nil, "did not show"},
		"a key that nobody registered":          {good, stranger, "did not show"},
		"her pseudonym of the store ended":      {left.link(news, to), left.browser, "did not show"},
		"another user's link":                   {good, bob.browser, "trusts"},
		"a link that proves nothing":            {with(func(l *pseudonym.Link) { l.MAC = "" }), alice.browser, "trusts"},
		"a link of another page":                {with(func(l *pseudonym.Link) { l.To += "b" }), alice.browser, "trusts"},
		"a link of another pseudonym":           {with(func(l *pseudonym.Link) { l.From = alice.names[shop].Label }), alice.browser, "trusts"},
		"a link of a pseudonym that nobody has": {with(func(l *pseudonym.Link) { l.From = pseudonym.NewLabel() }), alice.browser, "trusts"},
		"a link from elsewhere":                 {pseudonym.Link{To: to}, alice.browser, "trusts"},
		"a pseudonym that ended":                {ended.link(news, to), ended.browser, "trusts"},
		"a site that is not trusted":            {bob.link(bank, to), bob.browser, "trusts"},
		"trust the other way":                   {alice.link(shop, "https://news.example/"), alice.browser, "trusts"},
		"no pseudonym of the target":            {carol.link(news, to), carol.browser, "no pseudonym"},
		"it ended":                              {gone.link(news, to), gone.browser, "no pseudonym"},
		"an outsider's link, an outsider":       {pseudonym.Link{To: to}, nil, ""},
		"a false link, an outsider":             {with(func(l *pseudonym.Link) { l.MAC = "" }), nil, ""},
	} {
		r := s.follow(c.link, c.browser, nil)
		body := text(t, r)
		for _, p := range []person{alice, bob, carol, ended, gone, left} {
			if n := zone.Name(p.names[shop].Label); p.names[shop].Label != "" && (strings.Contains(body, n) || strings.Contains(r.Header.Get("Location"), n)) {
				t.Errorf("%s: names a pseudonym of the target", name)
			}
		}
		if c.says == "" {
			if r.StatusCode != http.StatusSeeOther || r.Header.Get("Location") != to {
				t.Errorf("%s: %s to %s", name, r.Status, r.Header.Get("Location"))
			}
		} else if r.StatusCode != http.StatusOK || !strings.Contains(body, c.says) || !strings.Contains(body, `href="`+c.link.To+`"`) {
			t.Errorf("%s: %s\n%s", name, r.Status, body)
		}
	}
	// Her way to a pseudonym of the target is by her own pseudonym of the store.
	body := text(t, s.follow(carol.link(news, to), carol.browser, nil))
	if entrance := "https://" + zone.Name(carol.names[zone.Store()].Label) + "/?site=shop.example&amp;" + query(carol.names[zone.Store()]); !strings.Contains(body, entrance) {
		t.Errorf("lacks %s:\n%s", entrance, body)
	}
}

// A link leads nowhere but to sites of the cloud: the linker is no open redirector.
func TestLeadsToSitesOfTheCloudOnly(t *testing.T) {
	s := newStreet(t)
	alice := s.person(news, shop)
	for _, to := range []string{"", "https://elsewhere.example/", "javascript:alert(1)", "//shop.example/", "https://shop.example:8443/", "https://me@shop.example/", "https://192.0.2.1/",
		"https://" + zone.Store() + "/", "https://shop.example.elsewhere.example/", "shop.example", "https://\x00shop.example/"} {
		if r := s.follow(alice.link(news, to), alice.browser, nil); r.StatusCode != http.StatusNotFound || r.Header.Get("Location") != "" {
			t.Errorf("%q: %s, %s", to, r.Status, r.Header.Get("Location"))
		}
	}
}

// A page cannot have its visitor's browser load a link, to measure what comes.
func TestPagesCannotProbe(t *testing.T) {
	s := newStreet(t)
	alice := s.person(news, shop)
	for name, headers := range map[string]map[string]string{
		"an image":   {"Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"},
		"fetch":      {"Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"},
		"a frame":    {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"},
		"a prefetch": {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document", "Sec-Purpose": "prefetch;prerender"},
	} {
		r := s.follow(alice.link(news, "https://shop.example/"), alice.browser, func(r *http.Request) {
			for key, value := range headers {
				r.Header.Set(key, value)
			}
		})
		if r.StatusCode != http.StatusForbidden || r.Header.Get("Location") != "" {
			t.Errorf("%s: %s", name, r.Status)
		}
	}
	r := s.follow(alice.link(news, "https://shop.example/"), alice.browser, func(r *http.Request) {
		r.Header.Set("Sec-Fetch-Mode", "navigate")
		r.Header.Set("Sec-Fetch-Dest", "document")
	})
	if r.StatusCode != http.StatusSeeOther {
		t.Errorf("a click: %s", r.Status)
	}
}

func TestDatabaseIsAway(t *testing.T) {
	s := newStreet(t)
	alice := s.person(news, shop)
	s.db.Close()
	if r := s.follow(alice.link(news, "https://shop.example/"), alice.browser, nil); r.StatusCode != http.StatusServiceUnavailable || r.Header.Get("Location") != "" {
		t.Errorf("%s to %s", r.Status, r.Header.Get("Location"))
	}
}

func FuzzFollow(f *testing.F) {
	f.Add("https://shop.example/a?b#c", "", "")
	f.Add("https://shop.example/%zz", strings.Repeat("a", 26), strings.Repeat("a", 26))
	s := newStreet(f)
	f.Fuzz(func(t *testing.T, to, from, mac string) {
		u := pseudonym.Link{To: to, From: pseudonym.Label(from), MAC: mac}.URL(zone)
		r := httptest.NewRequest(http.MethodGet, u, nil)
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if at := w.Header().Get("Location"); at != "" {
			to, err := url.Parse(at)
			if err != nil || to.Host != news && to.Host != shop && to.Host != bank {
				t.Errorf("%q leads to %q, %v", u, at, err)
			}
		}
	})
}
