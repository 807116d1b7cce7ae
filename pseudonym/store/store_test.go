package store

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"heddle/internal/connlimit"
	"heddle/pseudonym"
	"heddle/pseudonym/ca"
	"heddle/pseudonym/ca/catest"
	"heddle/pseudonym/database"
	"heddle/pseudonym/mutual"
	"heddle/pseudonym/recheck"
	"heddle/pseudonym/work"
)

const zone = pseudonym.Zone("cloud.example")

// shelf is a store of two sites, and of itself.
type shelf struct {
	*Store
	db      *database.DB
	tenants map[string]*x509.Certificate
}

func newShelf(t testing.TB) *shelf {
	t.Helper()
	return newShelfIn(t, filepath.Join(t.TempDir(), "pseudonyms.db"))
}

func newShelfIn(t testing.TB, at string) *shelf {
	t.Helper()
	issuer, root := catest.NewIssuer(t, string(zone))
	seal, err := database.NewSeal(make([]byte, database.SealKeySize))
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	db, err := database.Open(t.Context(), at, seal, log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	s := &shelf{New(Options{Zone: zone, Database: db, Issuer: issuer, Root: root.Raw, Life: time.Hour, Most: 3, Work: work.MinBits, WorkKey: []byte("key"), Log: log}), db, map[string]*x509.Certificate{}}
	for i, site := range []string{"news.example", "shop.example"} {
		if s.tenants[site], err = ca.Client("tenant", catest.NewKey(t), time.Now(), time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		if err := db.AddTenant(t.Context(), database.Tenant{Site: site, Addresses: []string{fmt.Sprintf("10.0.0.%d:4443", i+1)}, Client: ca.KeyOf(s.tenants[site]), Created: time.Now()}); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.PutTenant(t.Context(), database.Tenant{Site: zone.Store(), Addresses: []string{"10.0.0.9:1"}, Created: time.Now()}); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestRegister(t *testing.T) {
	s, owner := newShelf(t), pseudonym.NewOwner()
	names, keys := map[string]bool{}, map[string]bool{}
	for i := range 3 {
		key := ca.KeyID{byte(i)}
		r, err := s.Register(t.Context(), "News.Example.", key, owner)
		if err != nil {
			t.Fatal(err)
		}
		l, ok := zone.Label(r.Name)
		if !ok || names[r.Name] || r.Site != "news.example" || !strings.HasPrefix(r.URL, "https://"+r.Name+"/?pseudonym=") {
			t.Errorf("%+v", r)
		}
		names[r.Name] = true
		e, err := s.Entry(t.Context(), l)
		if err != nil || e.Client != key || e.Capability.String() != r.URL[strings.IndexByte(r.URL, '=')+1:] {
			t.Fatalf("%+v, %v", e, err)
		}
		leaf, err := x509.ParseCertificate(e.Chain[0])
		if err != nil || leaf.DNSNames[0] != r.Name || len(e.Chain) != 2 || keys[string(leaf.RawSubjectPublicKeyInfo)] {
			t.Errorf("the certificate is for %v, of a chain of %d, %v", leaf.DNSNames, len(e.Chain), err)
		}
		keys[string(leaf.RawSubjectPublicKeyInfo)] = true
		// The name of the site is in nothing that a network sees.
		if bytes.Contains(leaf.Raw, []byte("news")) {
			t.Error("the certificate names the site")
		}
	}
	if _, err := s.Register(t.Context(), "news.example", ca.KeyID{9}, owner); !errors.Is(err, ErrTooMany) {
		t.Errorf("a fourth one: %v", err)
	}
	for _, site := range []string{"other.example", "*.example", "192.0.2.1", "nеws.example"} {
		if _, err := s.Register(t.Context(), site, ca.KeyID{9}, pseudonym.NewOwner()); err == nil {
			t.Errorf("%s is registered", site)
		}
	}
}

func TestRenewAndRevoke(t *testing.T) {
	s, owner := newShelf(t), pseudonym.NewOwner()
	r, err := s.Register(t.Context(), "news.example", ca.KeyID{1}, owner)
	if err != nil {
		t.Fatal(err)
	}
	l, _ := zone.Label(r.Name)
	before, err := s.Entry(t.Context(), l)
	if err != nil {
		t.Fatal(err)
	}
	s.now = func() time.Time { return time.Now().Add(30 * time.Minute) }
	again, err := s.Renew(t.Context(), r.Name, owner)
	if err != nil || !again.Expires.After(r.Expires) || again.URL != r.URL {
		t.Errorf("%+v, %v", again, err)
	}
	if after, err := s.Entry(t.Context(), l); err != nil || !bytes.Equal(after.Key, before.Key) {
		t.Errorf("another key after renewal, %v", err)
	}
	stranger := pseudonym.NewOwner()
	for name, err := range map[string]error{"revoke": s.Revoke(t.Context(), r.Name, stranger), "renew": second(s.Renew(t.Context(), r.Name, stranger)),
		"of another zone": s.Revoke(t.Context(), string(l)+".other.example", owner)} {
		if !errors.Is(err, pseudonym.ErrNone) {
			t.Errorf("%s by a stranger: %v", name, err)
		}
	}
	if to, err := s.db.Route(t.Context(), l, time.Now()); err != nil || !slices.Equal(to.Addresses, []string{"10.0.0.1:4443"}) {
		t.Errorf("leads to %+v, %v", to, err)
	}
	if err := s.Revoke(t.Context(), r.Name, owner); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Entry(t.Context(), l); !errors.Is(err, pseudonym.ErrNone) {
		t.Errorf("after revocation: %v", err)
	}
	if all, err := s.Owned(t.Context(), owner); err != nil || len(all) != 0 {
		t.Errorf("%+v, %v", all, err)
	}
}

// A person who comes to the store now and then keeps her pseudonym of it. Without that one she could not renew the others.
func TestProlong(t *testing.T) {
	s, owner := newShelf(t), pseudonym.NewOwner()
	r, err := s.Register(t.Context(), zone.Store(), ca.KeyID{1}, owner)
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	if r.Expires.Before(begin.Add(300 * 24 * time.Hour)) {
		t.Errorf("it ends on %v", r.Expires)
	}
	l, _ := zone.Label(r.Name)
	get := func() database.Pseudonym {
		p, err := s.db.Get(t.Context(), l)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	p := get()
	p.Expires = begin.Add(24 * time.Hour)
	if err := s.db.Renew(t.Context(), l, p.Certificate, p.Expires); err != nil {
		t.Fatal(err)
	}
	if err := s.Prolong(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	prolonged := get()
	if !prolonged.Expires.After(begin.Add(300*24*time.Hour)) || bytes.Equal(prolonged.Certificate, p.Certificate) {
		t.Errorf("it ends on %v", prolonged.Expires)
	}
	s.now = func() time.Time { return begin.Add(time.Hour) }
	if err := s.Prolong(t.Context(), prolonged); err != nil || !bytes.Equal(get().Certificate, prolonged.Certificate) {
		t.Errorf("renewed for an hour more, %v", err)
	}
}

func second[T any](_ T, err error) error { return err }

// post registers over HTTP, from an address.
func post(h http.Handler, from, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/v1/pseudonyms", strings.NewReader(body))
	r.RemoteAddr = from
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func request(t *testing.T, site string, key *ecdsa.PrivateKey) string {
	t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(Request{Site: site, Request: der})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestRegistrationOverHTTP(t *testing.T) {
	s := newShelf(t)
	h := s.Users()
	good := func() string { return request(t, "news.example", catest.NewKey(t)) }
	w := post(h, "198.51.100.1:1", good())
	var r Registration
	if err := json.Unmarshal(w.Body.Bytes(), &r); err != nil || w.Code != http.StatusCreated || r.Name == "" {
		t.Errorf("%d %s, %v", w.Code, w.Body, err)
	}
	curve, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		body   string
		status int
	}{
		"no JSON":                {"{", http.StatusBadRequest},
		"no certificate request": {`{"site":"news.example","request":"AAAA"}`, http.StatusBadRequest},
		"another kind of key":    {request(t, "news.example", curve), http.StatusBadRequest},
		"a wrong signature":      {forged(t), http.StatusBadRequest},
		"another site":           {request(t, "other.example", catest.NewKey(t)), http.StatusNotFound},
		"a huge one":             {`{"site":"` + strings.Repeat("a", mostRequest), http.StatusBadRequest},
	} {
		w := post(h, "198.51.100.2:1", c.body)
		var p Problem
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || w.Code != c.status || p.Error == "" {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
	}
	// One source does not fill the store, and locks nobody else out.
	refused := 0
	for range 3 * connlimit.FailuresAtOnce {
		if post(h, "203.0.113.1:1", good()).Code == http.StatusTooManyRequests {
			refused++
		}
	}
	if refused < connlimit.FailuresAtOnce {
		t.Errorf("%d registrations of one source were refused", refused)
	}
	cross := httptest.NewRequest(http.MethodPost, "/v1/pseudonyms", strings.NewReader(good()))
	cross.Header.Set("Sec-Fetch-Site", "cross-site")
	answer := httptest.NewRecorder()
	if h.ServeHTTP(answer, cross); answer.Code != http.StatusForbidden {
		t.Errorf("a page of another site: %d", answer.Code)
	}
	if w := post(h, "203.0.113.99:1", good()); w.Code != http.StatusCreated {
		t.Errorf("another source: %d %s", w.Code, w.Body)
	}
	for _, method := range []string{http.MethodGet, http.MethodDelete} {
		w := httptest.NewRecorder()
		target := "/v1/pseudonyms"
		if method == http.MethodDelete {
			target += "/" + r.Name
		}
		h.ServeHTTP(w, httptest.NewRequest(method, target, nil))
		if w.Code != http.StatusForbidden {
			t.Errorf("%s of a stranger: %d", method, w.Code)
		}
	}
}

// forged is a request with the key of somebody else.
func forged(t *testing.T) string {
	t.Helper()
	var q Request
	if err := json.Unmarshal([]byte(request(t, "news.example", catest.NewKey(t))), &q); err != nil {
		t.Fatal(err)
	}
	q.Request[len(q.Request)-1] ^= 1
	text, err := json.Marshal(q)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A tenant gets its own pseudonyms, and learns of others only that something changed.
func TestTenantsGetTheirOwnOnly(t *testing.T) {
	s := newShelf(t)
	r, err := s.Register(t.Context(), "news.example", ca.KeyID{1}, pseudonym.NewOwner())
	if err != nil {
		t.Fatal(err)
	}
	l, _ := zone.Label(r.Name)
	stranger, err := ca.Client("tenant", catest.NewKey(t), time.Now(), time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	h := s.Tenants()
	for name, c := range map[string]struct {
		by     *x509.Certificate
		label  pseudonym.Label
		status int
	}{
		"its own":             {s.tenants["news.example"], l, http.StatusOK},
		"another tenant's":    {s.tenants["shop.example"], l, http.StatusNotFound},
		"nobody's":            {s.tenants["news.example"], pseudonym.NewLabel(), http.StatusNotFound},
		"a stranger":          {stranger, l, http.StatusForbidden},
		"without certificate": {nil, l, http.StatusForbidden},
	} {
		q := httptest.NewRequest(http.MethodGet, EntryPath+string(c.label), nil)
		if q.TLS = (&tls.ConnectionState{}); c.by != nil {
			q.TLS.PeerCertificates = []*x509.Certificate{c.by}
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, q)
		var e mutual.Entry
		if w.Code != c.status || w.Code == http.StatusOK && (json.Unmarshal(w.Body.Bytes(), &e) != nil || e.Label != l || e.Client != (ca.KeyID{1})) {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
		if w.Code != http.StatusOK && strings.Contains(w.Body.String(), "news") {
			t.Errorf("%s: %s", name, w.Body)
		}
	}
}

// A tenant that asks which of many labels ended learns no more than when it asks for each.
func TestTenantsAskForMany(t *testing.T) {
	s := newShelf(t)
	var labels []pseudonym.Label // of it, revoked, another tenant's, nobody's
	for i, site := range []string{"news.example", "news.example", "shop.example"} {
		r, err := s.Register(t.Context(), site, ca.KeyID{byte(i + 1)}, pseudonym.NewOwner())
		if err != nil {
			t.Fatal(err)
		}
		l, _ := zone.Label(r.Name)
		labels = append(labels, l)
	}
	labels = append(labels, pseudonym.NewLabel())
	if err := s.db.Revoke(t.Context(), labels[1], time.Now()); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		labels []pseudonym.Label
		status int
	}{"some": {labels, http.StatusOK}, "too many": {make([]pseudonym.Label, recheck.AtOnce+1), http.StatusBadRequest}} {
		text, err := json.Marshal(c.labels)
		if err != nil {
			t.Fatal(err)
		}
		q := httptest.NewRequest(http.MethodPost, EndedPath, bytes.NewReader(text))
		q.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{s.tenants["news.example"]}}
		w := httptest.NewRecorder()
		s.Tenants().ServeHTTP(w, q)
		var ended []pseudonym.Label
		if w.Code != c.status || w.Code == http.StatusOK && (json.Unmarshal(w.Body.Bytes(), &ended) != nil || !slices.Equal(ended, labels[1:])) {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
	}
}

// A tenant lists the labels of its own pseudonyms that are good, and of nobody else's.
func TestTenantsList(t *testing.T) {
	s := newShelf(t)
	made := map[string]pseudonym.Label{}
	for name, site := range map[string]string{"mine": "news.example", "gone": "news.example", "other": "shop.example"} {
		r, err := s.Register(t.Context(), site, ca.KeyID{byte(len(made) + 1)}, pseudonym.NewOwner())
		if err != nil {
			t.Fatal(err)
		}
		made[name], _ = zone.Label(r.Name)
	}
	if err := s.db.Revoke(t.Context(), made["gone"], time.Now()); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		ListPath(time.Time{}):               `["` + string(made["mine"]) + `"]`,
		ListPath(time.Now().Add(time.Hour)): `[]`,
		EntryPath + "?since=x":              "since is no time",
	} {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{s.tenants["news.example"]}}
		w := httptest.NewRecorder()
		s.Tenants().ServeHTTP(w, r)
		if got := strings.TrimSpace(w.Body.String()); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}

// A tenant says whom it trusts for itself alone, and learns of the sites that links may lead to.
func TestTenantsTrust(t *testing.T) {
	s := newShelf(t)
	h := s.Tenants()
	ask := func(method, path, body string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, path, strings.NewReader(body))
		r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{s.tenants["shop.example"]}}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	if w := ask(http.MethodGet, SitesPath, ""); w.Code != http.StatusOK || strings.TrimSpace(w.Body.String()) != `["news.example","shop.example"]` {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := ask(http.MethodPut, TrustsPath, `["News.Example."]`); w.Code != http.StatusNoContent {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	for name, body := range map[string]string{"no list": "{", "no host name": `["news.example","*"]`, "too many": `["a.example"` + strings.Repeat(`,"a.example"`, mostTrusts) + `]`} {
		if w := ask(http.MethodPut, TrustsPath, body); w.Code != http.StatusBadRequest {
			t.Errorf("%s: %d", name, w.Code)
		}
	}
	for site, want := range map[string]bool{"shop.example": true, "news.example": false} {
		if got, err := s.db.Trusts(t.Context(), site, "news.example"); err != nil || got != want {
			t.Errorf("%s: %v, %v", site, got, err)
		}
	}
}
