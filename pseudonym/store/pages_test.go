package store

import (
	"crypto"
	"crypto/ecdsa"
	"encoding/base64"
	"encoding/pem"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"software.sslmate.com/src/go-pkcs12"

	"heddle/internal/connlimit"
	"heddle/pseudonym"
	"heddle/pseudonym/ca"
)

// submit sends a form as a browser does. Somebody new has no owner.
func submit(h http.Handler, path string, owner *pseudonym.Owner, form url.Values) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return send(h, r, owner)
}

func show(h http.Handler, path string, owner *pseudonym.Owner) *httptest.ResponseRecorder {
	return send(h, httptest.NewRequest(http.MethodGet, path, nil), owner)
}

func send(h http.Handler, r *http.Request, owner *pseudonym.Owner) *httptest.ResponseRecorder {
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	r.RemoteAddr = "198.51.100.1:1"
	if owner != nil {
		r = By(r, *owner)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

var (
	fileLink  = regexp.MustCompile(`download="([^"]+\.p12)" href="data:application/x-pkcs12;base64,([^"]+)"`)
	passText  = regexp.MustCompile(`id="passphrase">([^<]+)<`)
	nameInURL = regexp.MustCompile(`https://([a-z2-7]{26}\.cloud\.example)/\?pseudonym=[a-z2-7]{26}`)
)

// imported is what a browser has after the import of one file.
type imported struct {
	key             ca.KeyID
	subject, issuer string
}

// browse registers by the page, and imports what it says.
func browse(t *testing.T, w *httptest.ResponseRecorder) map[string]imported {
	t.Helper()
	if w.Code != http.StatusCreated {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	pass := passText.FindStringSubmatch(w.Body.String())
	got := map[string]imported{}
	for _, m := range fileLink.FindAllStringSubmatch(w.Body.String(), -1) {
		content, err := base64.StdEncoding.DecodeString(html.UnescapeString(m[2]))
		if err != nil {
			t.Fatal(err)
		}
		key, cert, err := pkcs12.Decode(content, pass[1])
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := pkcs12.Decode(content, "another"); err == nil {
			t.Error("the passphrase protects nothing")
		}
		signer, ok := key.(crypto.Signer)
		if public, is := cert.PublicKey.(*ecdsa.PublicKey); !ok || !is || !public.Equal(signer.Public()) {
			t.Errorf("the certificate is not that of the key: %T, %T", key, cert.PublicKey)
		}
		if !cert.NotAfter.After(time.Now().Add(5 * 365 * 24 * time.Hour)) {
			t.Errorf("the certificate ends on %v, and a browser cannot renew it", cert.NotAfter)
		}
		got[strings.TrimSuffix(m[1], ".p12")] = imported{key: ca.KeyOf(cert), subject: cert.Subject.CommonName, issuer: cert.Issuer.CommonName}
	}
	return got
}

// Somebody new gets a pseudonym of a site by the page and one of the store, and by that one lists, renews and revokes.
func TestRegistrationByThePages(t *testing.T) {
	s := newShelf(t)
	h := s.Users()
	if w := show(h, "/", nil); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `value="shop.example"`) || strings.Contains(w.Body.String(), `value="store.`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	w := submit(h, "/get", nil, url.Values{"site": {"News.Example"}, "own": {"yes"}})
	files := browse(t, w)
	if len(files) != 2 {
		t.Fatalf("files %v\n%s", files, w.Body)
	}
	names := nameInURL.FindAllStringSubmatch(w.Body.String(), -1)
	if len(names) != 2 {
		t.Fatalf("%v", names)
	}
	var owner pseudonym.Owner
	for i, site := range []string{"news.example", zone.Store()} {
		l, ok := zone.Label(names[i][1])
		if !ok {
			t.Fatal(names[i])
		}
		p, err := s.db.Get(t.Context(), l)
		issuer := map[string]string{"news.example": zone.Name(l), zone.Store(): string(zone)}[site]
		if f := files[site]; err != nil || p.Site != site || p.Client != f.key || f.subject != site || f.issuer != issuer {
			t.Errorf("%s: %+v, %v; the file has %+v", site, p, err, f)
		}
		if i == 1 && p.Owner != owner {
			t.Error("the pseudonym of the store is somebody else's")
		}
		owner = p.Owner
	}
	if files["news.example"].key == files[zone.Store()].key {
		t.Error("a site and the store see the same key")
	}
	home := show(h, "/", &owner).Body.String()
	if !strings.Contains(home, names[0][0]) || !strings.Contains(home, names[1][0]) {
		t.Errorf("the list lacks one:\n%s", home)
	}
	one := url.Values{"name": {names[0][1]}}
	before, _ := s.db.Get(t.Context(), pseudonym.Label(names[0][1][:26]))
	s.now = func() time.Time { return time.Now().Add(30 * time.Minute) }
	if w := submit(h, "/renew", &owner, one); w.Code != http.StatusSeeOther {
		t.Errorf("renew: %d %s", w.Code, w.Body)
	}
	if after, err := s.db.Get(t.Context(), before.Label); err != nil || !after.Expires.After(before.Expires) {
		t.Errorf("renewed until %v, before %v, %v", after.Expires, before.Expires, err)
	}
	if w := show(h, "/revoke?"+one.Encode(), &owner); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "news.example") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	// A known person who registers is the same one, and needs no other pseudonym of the store.
	if files := browse(t, submit(h, "/get", &owner, url.Values{"site": {"shop.example"}, "own": {"yes"}})); len(files) != 1 {
		t.Errorf("%v", files)
	}
	if w := submit(h, "/revoke", &owner, one); w.Code != http.StatusSeeOther || strings.Contains(show(h, "/", &owner).Body.String(), names[0][1]) {
		t.Errorf("revoke: %d %s", w.Code, w.Body)
	}
	if w := submit(h, "/revoke", &owner, url.Values{"name": {names[1][1]}}); w.Code != http.StatusOK {
		t.Errorf("revoke the store: %d %s", w.Code, w.Body)
	}
}

func TestPagesRefuse(t *testing.T) {
	s := newShelf(t)
	h := s.Users()
	r, err := s.Register(t.Context(), "news.example", ca.KeyID{1}, pseudonym.NewOwner())
	if err != nil {
		t.Fatal(err)
	}
	stranger := pseudonym.NewOwner()
	theirs := url.Values{"name": {r.Name}}
	for name, c := range map[string]struct {
		w      *httptest.ResponseRecorder
		status int
		says   string
	}{
		"no site":                      {submit(h, "/get", &stranger, nil), http.StatusBadRequest, "it is empty"},
		"another cloud's site":         {submit(h, "/get", &stranger, url.Values{"site": {"other.example"}}), http.StatusNotFound, "does not host it"},
		"markup":                       {submit(h, "/get", &stranger, url.Values{"site": {"<script>x"}}), http.StatusBadRequest, "no host name"},
		"markup in a link":             {show(h, "/?site=%22%3E%3Cscript%3Ex", &stranger), http.StatusOK, "&lt;script&gt;"},
		"a huge form":                  {submit(h, "/get", &stranger, url.Values{"site": {strings.Repeat("a", mostForm)}}), http.StatusBadRequest, ""},
		"renew another's":              {submit(h, "/renew", &stranger, theirs), http.StatusNotFound, ""},
		"revoke another's":             {submit(h, "/revoke", &stranger, theirs), http.StatusNotFound, ""},
		"look at another's":            {show(h, "/revoke?"+theirs.Encode(), &stranger), http.StatusNotFound, ""},
		"renew without a pseudonym":    {submit(h, "/renew", nil, theirs), http.StatusForbidden, "bookmark"},
		"revoke without a pseudonym":   {submit(h, "/revoke", nil, theirs), http.StatusForbidden, "bookmark"},
		"a page that is not there":     {show(h, "/elsewhere", &stranger), http.StatusNotFound, ""},
		"a list without a pseudonym":   {show(h, "/", nil), http.StatusOK, "been here before"},
		"revoke by a link, not a form": {show(h, "/revoke?name=x", nil), http.StatusForbidden, "bookmark"},
	} {
		if c.w.Code != c.status || !strings.Contains(c.w.Body.String(), c.says) || strings.Contains(c.w.Body.String(), "<script>") {
			t.Errorf("%s: %d %s", name, c.w.Code, c.w.Body)
		}
	}
	if e, err := s.db.Get(t.Context(), pseudonym.Label(r.Name[:26])); err != nil || !e.Revoked.IsZero() {
		t.Errorf("%+v, %v", e, err)
	}
	// Pages of other sites cannot send forms.
	cross := httptest.NewRequest(http.MethodPost, "/get", strings.NewReader("site=news.example"))
	cross.Header.Set("Sec-Fetch-Site", "cross-site")
	w := httptest.NewRecorder()
	if h.ServeHTTP(w, cross); w.Code != http.StatusForbidden {
		t.Errorf("another site's form: %d", w.Code)
	}
	refused := 0
	for range 3 * connlimit.FailuresAtOnce {
		if submit(h, "/get", nil, url.Values{"site": {"news.example"}}).Code == http.StatusTooManyRequests {
			refused++
		}
	}
	if refused < connlimit.FailuresAtOnce {
		t.Errorf("%d registrations of one source were refused", refused)
	}
}

// The certificate that a browser has to trust is that of the cloud.
func TestRootOfThePages(t *testing.T) {
	s := newShelf(t)
	w := show(s.Users(), "/root.crt", nil)
	block, _ := pem.Decode(w.Body.Bytes())
	if block == nil || string(block.Bytes) != string(s.o.Root) || w.Header().Get("Content-Type") != "application/x-x509-ca-cert" {
		t.Errorf("%v %s", w.Header(), w.Body)
	}
	if w := show(s.Users(), "/style.css", nil); w.Code != http.StatusOK || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/css") {
		t.Errorf("%d %v", w.Code, w.Header())
	}
}
