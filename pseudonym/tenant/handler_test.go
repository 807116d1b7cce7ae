package tenant

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"heddle/pseudonym"
	"heddle/pseudonym/ca"
	"heddle/pseudonym/mutual"
)

const (
	zone = pseudonym.Zone("cloud.example")
	site = "news.example"
)

// known is a source of one pseudonym.
type known struct{ e *mutual.Entry }

func (k known) Pseudonym(_ context.Context, l pseudonym.Label) (*mutual.Entry, error) {
	if l != k.e.Label {
		return nil, pseudonym.ErrNone
	}
	return k.e, nil
}

// front is a handler before a server that a test writes.
type front struct {
	*handler
	e    *mutual.Entry
	seen *http.Request // what the site's server got last
}

func newFront(t *testing.T, serve http.HandlerFunc) *front {
	t.Helper()
	key, err := ca.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	f := &front{e: &mutual.Entry{Label: pseudonym.NewLabel(), Site: site, Capability: pseudonym.NewCapability(), Expires: time.Now().Add(time.Hour), Key: der}}
	names, err := mutual.NewServer(zone, known{f.e}, 10)
	if err != nil {
		t.Fatal(err)
	}
	behind := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.seen = r.Clone(context.Background())
		serve(w, r)
	}))
	t.Cleanup(behind.Close)
	to, err := url.Parse(behind.URL)
	if err != nil {
		t.Fatal(err)
	}
	f.handler = newHandler(Options{Zone: zone, To: to, Log: slog.New(slog.DiscardHandler)}, names, func(site string) bool { return site == "shop.example" })
	return f
}

func (f *front) name() string { return zone.Name(f.e.Label) }

// ask sends a request by the pseudonym.
func (f *front) ask(target string, edit func(*http.Request)) *http.Response {
	r := httptest.NewRequest(http.MethodGet, "https://"+f.name()+target, nil)
	r.TLS = &tls.ConnectionState{ServerName: f.name()}
	r.RemoteAddr = "198.51.100.7:1234"
	if edit != nil {
		edit(r)
	}
	w := httptest.NewRecorder()
	f.ServeHTTP(w, r)
	return w.Result()
}

func (f *front) query() string { return pseudonym.CapabilityKey + "=" + f.e.Capability.String() }

func (f *front) cookie(r *http.Request) {
	r.Header.Add("Cookie", mutual.CookieName+"="+f.e.Capability.String())
}

func TestCapability(t *testing.T) {
	f := newFront(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "page") })
	from := func(where string) func(*http.Request) {
		return func(r *http.Request) {
			f.cookie(r)
			if where != "" {
				r.Header.Set("Sec-Fetch-Site", where)
			}
		}
	}
	other := pseudonym.CapabilityKey + "=" + pseudonym.NewCapability().String()
	for _, c := range []struct {
		name, target string
		edit         func(*http.Request)
		status       int
	}{
		{"none", "/", nil, 404},
		{"in the query", "/?" + f.query(), nil, 200},
		{"in the query, from another site", "/?" + f.query(), func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }, 200},
		{"another one", "/?" + other, nil, 404},
		{"a part", "/?" + f.query()[:20], nil, 404},
		{"the cookie", "/", from(""), 200},
		{"the cookie, typed", "/", from("none"), 200},
		{"the cookie, by its own page", "/", from("same-origin"), 200},
		{"the cookie, by another tenant's page", "/", from("same-site"), 404},
		{"the cookie, by another site's page", "/", from("cross-site"), 404},
		{"the cookie beside a wrong query", "/?" + other, from(""), 200},
		{"another host", "/?" + f.query(), func(r *http.Request) { r.Host = zone.Name(pseudonym.NewLabel()) }, 421},
		{"the site's own name", "/?" + f.query(), func(r *http.Request) { r.Host = site }, 421},
		{"a port", "/?" + f.query(), func(r *http.Request) { r.Host = f.name() + ":443" }, 200},
		{"no TLS", "/?" + f.query(), func(r *http.Request) { r.TLS = nil }, 404},
		{"of a pseudonym that ended", "/?" + f.query(), func(r *http.Request) { r.TLS.ServerName = zone.Name(pseudonym.NewLabel()) }, 421},
	} {
		f.seen = nil
		r := f.ask(c.target, c.edit)
		if r.StatusCode != c.status || (f.seen != nil) != (c.status == 200) {
			t.Errorf("%s: %s", c.name, r.Status)
		}
		if f.seen == nil {
			continue
		}
		if strings.Contains(f.seen.URL.String(), f.e.Capability.String()) || strings.Contains(f.seen.Header.Get("Cookie"), f.e.Capability.String()) {
			t.Errorf("%s: the site's server sees the capability", c.name)
		}
		if shown := strings.Contains(c.target, f.query()); shown != (len(r.Cookies()) == 1) {
			t.Errorf("%s: cookies %v", c.name, r.Cookies())
		}
	}
}

func TestCookieStaysWithTheBrowserAndTheSite(t *testing.T) {
	f := newFront(t, func(w http.ResponseWriter, _ *http.Request) {})
	c := f.ask("/?"+f.query(), nil).Cookies()[0]
	if !c.Secure || !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Domain != "" || c.Path != "/" || !strings.HasPrefix(c.Name, "__Host-") {
		t.Errorf("%+v", c)
	}
}

// The rest of a request passes as it is, and tells the site's server its own name and the client's address.
func TestRequestsPass(t *testing.T) {
	f := newFront(t, func(w http.ResponseWriter, _ *http.Request) {})
	f.ask("/a%2Fb?x=1&"+f.query()+"&y=%20&x=2", func(r *http.Request) {
		r.Header.Set("Cookie", "a=1; "+mutual.CookieName+"="+f.e.Capability.String()+"; b=\"odd, value\"")
		r.Header.Set("Origin", "https://"+f.name())
		r.Header.Set("Referer", "https://"+f.name()+"/page?x")
		r.Header.Set("X-Forwarded-For", "203.0.113.1")
	})
	r := f.seen
	for what, pair := range map[string][2]string{
		"path":    {r.URL.EscapedPath(), "/a%2Fb"},
		"query":   {r.URL.RawQuery, "x=1&y=%20&x=2"},
		"host":    {r.Host, site},
		"cookie":  {r.Header.Get("Cookie"), "a=1; b=\"odd, value\""},
		"origin":  {r.Header.Get("Origin"), "https://" + site},
		"referer": {r.Header.Get("Referer"), "https://" + site + "/page?x"},
		"client":  {r.Header.Get("X-Forwarded-For"), "198.51.100.7"},
		"scheme":  {r.Header.Get("X-Forwarded-Proto"), "https"},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s: %q, want %q", what, pair[0], pair[1])
		}
	}
}

func TestAnswersHaveThePseudonym(t *testing.T) {
	f := newFront(t, func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h.Set("Location", "http://"+site+"/next?x=1")
		h.Set("Content-Security-Policy", "default-src https://"+site+" cdn."+site+" "+site+".evil.example; img-src "+strings.ToUpper(site))
		h.Set("Link", "</a>; title=\"\xe9\xe9\xe9\xe9\", <https://"+site+"/b>; rel=next") // in ISO 8859-1
		h.Set("Referrer-Policy", "unsafe-url")
		h.Set("Alt-Svc", `h3=":443"`)
		for _, c := range []string{"plain=1", "own=1; Domain=" + site, "dot=1; Domain=." + site + "; Path=/a", "zone=1; Domain=cloud.example", "other=1; Domain=shop.example",
			mutual.CookieName + "=x; Secure; Path=/"} {
			h.Add("Set-Cookie", c)
		}
	})
	r := f.ask("/", f.cookie)
	for key, want := range map[string]string{
		"Location":                  "https://" + f.name() + "/next?x=1",
		"Content-Security-Policy":   "default-src https://" + f.name() + " cdn." + site + " " + site + ".evil.example; img-src " + f.name(),
		"Link":                      "</a>; title=\"\xe9\xe9\xe9\xe9\", <https://" + f.name() + "/b>; rel=next",
		"Referrer-Policy":           "same-origin",
		"Strict-Transport-Security": "max-age=31536000",
		"Alt-Svc":                   "",
	} {
		if got := r.Header.Get(key); got != want {
			t.Errorf("%s: %q, want %q", key, got, want)
		}
	}
	if got, want := r.Header.Values("Set-Cookie"), []string{"plain=1", "own=1", "dot=1; Path=/a"}; !slices.Equal(got, want) {
		t.Errorf("cookies %q, want %q", got, want)
	}
}

// clears are headers Clear-Site-Data of a site that sets the cookie new, for a request with the cookies a and b, and what the browser gets.
var clears = map[string]struct {
	header  string
	cookies []string
}{
	`"cookies"`:                     {"", []string{"a=; Path=/; Max-Age=0; Secure", "b=; Path=/; Max-Age=0; Secure", "new=1"}},
	`"cache", "cookies"`:            {`"cache"`, []string{"a=; Path=/; Max-Age=0; Secure", "b=; Path=/; Max-Age=0; Secure", "new=1"}},
	`"cookies", "cache"`:            {`"cache"`, []string{"a=; Path=/; Max-Age=0; Secure", "b=; Path=/; Max-Age=0; Secure", "new=1"}},
	`"cache", "cookies", "storage"`: {`"cache", "storage"`, []string{"a=; Path=/; Max-Age=0; Secure", "b=; Path=/; Max-Age=0; Secure", "new=1"}},
	`"*"`:                           {`"cache", "storage"`, []string{"a=; Path=/; Max-Age=0; Secure", "b=; Path=/; Max-Age=0; Secure", "new=1"}},
	`"cache", "executionContexts"`:  {`"cache", "executionContexts"`, []string{"new=1"}},
}

// A site that clears its cookies ends its session with the user, and not her access to it.
func TestClearSiteData(t *testing.T) {
	for text, want := range clears {
		f := newFront(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Clear-Site-Data", text)
			w.Header().Set("Set-Cookie", "new=1")
		})
		r := f.ask("/", func(r *http.Request) {
			f.cookie(r)
			r.Header.Set("Cookie", "a=1; "+r.Header.Get("Cookie")+"; b=2")
		})
		if got := r.Header.Get("Clear-Site-Data"); got != want.header {
			t.Errorf("%s is %q, want %q", text, got, want.header)
		}
		if got := r.Header.Values("Set-Cookie"); !slices.Equal(got, want.cookies) {
			t.Errorf("%s: cookies %q, want %q", text, got, want.cookies)
		}
	}
}

func TestRefererPolicyOfTheSite(t *testing.T) {
	f := newFront(t, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Referrer-Policy", "no-referrer") })
	if got := f.ask("/", f.cookie).Header.Get("Referrer-Policy"); got != "no-referrer" {
		t.Errorf("%q: the site wanted less", got)
	}
}

func TestSiteIsAway(t *testing.T) {
	f := newFront(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	if r := f.ask("/", f.cookie); r.StatusCode != http.StatusBadGateway {
		t.Error(r.Status)
	}
}

// Links and redirects to other sites of the cloud lead to the linker, and prove by which pseudonym the page was got.
func TestLinksToOtherSites(t *testing.T) {
	f := newFront(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		w.Header().Set("Location", r.URL.Query().Get("to"))
		io.WriteString(w, `<a href="`+r.URL.Query().Get("to")+`">`)
	})
	for to, plain := range map[string]string{
		"https://shop.example/a?b=c#d": "https://shop.example/a?b=c#d",
		"http://Shop.Example":          "http://Shop.Example",
		"//shop.example/":              "https://shop.example/",
		"https://shop.example:8443/":   "",
		"https://me@shop.example/":     "",
		"https://www.shop.example/":    "",
		"https://elsewhere.example/":   "",
		"ftp://shop.example/":          "",
		"/shop.example":                "",
	} {
		r := f.ask("/?to="+url.QueryEscape(to), f.cookie)
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		z := html.NewTokenizer(bytes.NewReader(body))
		z.Next()
		for where, got := range map[string]string{"header": r.Header.Get("Location"), "page": z.Token().Attr[0].Val} {
			if plain == "" {
				if got != to {
					t.Errorf("%s: %s leads to %s", where, to, got)
				}
				continue
			}
			u, err := url.Parse(got)
			if err != nil || u.Host != zone.Linker() || strings.Contains(got, f.e.Capability.String()) {
				t.Errorf("%s: %s leads to %s, %v", where, to, got, err)
				continue
			}
			if l := pseudonym.ParseLink(u.Query()); l.To != plain || l.From != f.e.Label || !l.Proved(f.e.Capability) || l.Proved(pseudonym.NewCapability()) {
				t.Errorf("%s: %s is %+v", where, to, l)
			}
		}
	}
}

// Pages and style sheets have the pseudonym, compressed or not; what else there is stays as it is.
func TestPagesHaveThePseudonym(t *testing.T) {
	const text = `<link href=/a.css><a href="http://` + site + `/next">` + site + `</a>`
	f := newFront(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", r.URL.Query().Get("type"))
		w.Header().Set("ETag", `"x"`)
		w.Header().Set("X-Encoding", r.Header.Get("Accept-Encoding"))
		out := io.Writer(w)
		if encoding := r.URL.Query().Get("encoding"); encoding != "" {
			w.Header().Set("Content-Encoding", encoding)
			if encoding == "gzip" {
				z := gzip.NewWriter(w)
				defer z.Close()
				out = z
			}
		}
		if r.URL.Query().Get("part") != "" {
			w.WriteHeader(http.StatusPartialContent)
		}
		io.WriteString(out, text)
	})
	whole := strings.Replace(text, "http://"+site, "https://"+f.name(), 1)
	css := strings.Replace(text, "//"+site, "//"+f.name(), 1)
	for query, want := range map[string]string{
		"type=text/html%3B%20charset=utf-8": whole,
		"type=text/html&encoding=gzip":      whole,
		"type=application/xhtml%2Bxml":      whole,
		"type=text/css":                     css,
		"type=text/css&encoding=gzip":       css,
		"type=text/plain":                   text,
		"type=application/json":             text,
		"type=":                             text,
	} {
		r := f.ask("/?"+query, func(r *http.Request) {
			f.cookie(r)
			r.Header.Set("Accept-Encoding", "br, gzip;q=0.8, zstd")
		})
		body := io.Reader(r.Body)
		if r.Header.Get("Content-Encoding") == "gzip" {
			z, err := gzip.NewReader(r.Body)
			if err != nil {
				t.Fatal(err)
			}
			body = z
		}
		got, err := io.ReadAll(body)
		if err != nil || string(got) != want {
			t.Errorf("%s: %q, want %q (%v)", query, got, want, err)
		}
		if tag := r.Header.Get("ETag"); (tag == `W/"x"`) != (want != text) {
			t.Errorf("%s: the tag is %s", query, tag)
		}
		if got := r.Header.Get("X-Encoding"); got != "gzip" {
			t.Errorf("%s: asked for %q", query, got)
		}
	}
	for accepts, want := range map[string]string{"": "identity", "br": "identity", "gzip;q=0, br": "identity", "*": "gzip", "GZIP": "gzip"} {
		r := f.ask("/?type=text/plain", func(r *http.Request) { f.cookie(r); r.Header.Set("Accept-Encoding", accepts) })
		if got := r.Header.Get("X-Encoding"); got != want {
			t.Errorf("%q: asked for %q", accepts, got)
		}
	}
	head := f.ask("/?type=text/html", func(r *http.Request) { f.cookie(r); r.Method = http.MethodHead })
	if got := head.Header.Get("Content-Length"); got != "" {
		t.Errorf("HEAD: a length of %s, which the page does not have", got)
	}
}

// A page that breaks off at the site's server breaks off for the client too.
func TestBrokenPage(t *testing.T) {
	f := newFront(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		w.Header().Set("Content-Length", "1000")
		io.WriteString(w, "<p>")
	})
	defer func() {
		if recover() != http.ErrAbortHandler {
			t.Error("a part of a page seems whole")
		}
	}()
	f.ask("/", func(r *http.Request) {
		f.cookie(r)
		*r = *r.WithContext(context.WithValue(r.Context(), http.ServerContextKey, &http.Server{})) // else a proxy takes it for a test
	})
}

// A form that asks another site of the cloud leads to the linker with what was typed. One that sends there is refused.
func TestFormsToOtherSites(t *testing.T) {
	f := newFront(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		io.WriteString(w, `<form action="https://shop.example/find?old=1">`)
	})
	page, err := io.ReadAll(f.ask("/", f.cookie).Body)
	if err != nil {
		t.Fatal(err)
	}
	z := html.NewTokenizer(bytes.NewReader(page))
	z.Next()
	action, whole := strings.CutPrefix(z.Token().Attr[0].Val, "https://"+f.name())
	if !whole || !strings.HasPrefix(action, formPath) {
		t.Fatalf("%s", page)
	}
	f.seen = nil
	r := f.ask(action+"?q=a%26b", f.cookie)
	u, err := url.Parse(r.Header.Get("Location"))
	if err != nil || r.StatusCode != http.StatusSeeOther || u.Host != zone.Linker() {
		t.Fatalf("%s %v %v", r.Status, u, err)
	}
	if l := pseudonym.ParseLink(u.Query()); l.To != "https://shop.example/find?q=a%26b" || !l.Proved(f.e.Capability) {
		t.Errorf("%+v", l)
	}
	for target, status := range map[string]int{action + "x": 404, formPath: 404, formPath + "aHR0cHM6Ly9ldmlsLmV4YW1wbGUv": 404} { // https://evil.example/
		if r := f.ask(target, f.cookie); r.StatusCode != status {
			t.Errorf("%s: %s", target, r.Status)
		}
	}
	if r := f.ask(action, func(r *http.Request) { f.cookie(r); r.Method = http.MethodPost }); r.StatusCode != http.StatusForbidden || r.Header.Get("Location") != "" {
		t.Errorf("sent: %s %v", r.Status, r.Header)
	}
	if f.seen != nil {
		t.Error("the site was asked")
	}
}

// Script files and JSON are changed if the site wants that, and only where a URL has its whole name.
func TestRewrite(t *testing.T) {
	const text = `fetch("https://` + site + `/x"); "https:\/\/` + site + `"; "` + site + `"; "https://` + site + `.evil.example"`
	f := newFront(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", r.URL.Query().Get("type"))
		io.WriteString(w, text)
	})
	changed := strings.NewReplacer("//"+site+"/", "//"+f.name()+"/", `\/\/`+site, `\/\/`+f.name()).Replace(text)
	for _, c := range []struct {
		rewrite []string
		kind    string
		want    string
	}{
		{nil, "text/javascript", text}, {nil, "application/json", text},
		{[]string{"json"}, "text/javascript", text}, {[]string{"json"}, "application/json", changed},
		{[]string{"scripts", "json"}, "application/javascript", changed}, {[]string{"scripts", "json"}, "application/ld%2Bjson", changed},
		{[]string{"scripts"}, "text/plain", text},
	} {
		f.rewrite = c.rewrite
		body, err := io.ReadAll(f.ask("/?type="+c.kind, f.cookie).Body)
		if err != nil || string(body) != c.want {
			t.Errorf("%v, %s: %q, want %q", c.rewrite, c.kind, body, c.want)
		}
	}
}

// Every answer keeps pages of other origins from what it has, also the answer to who lacks the capability (requirement R5).
func TestOtherOriginsAreKeptOut(t *testing.T) {
	allowed := ""
	f := newFront(t, func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Access-Control-Allow-Origin", allowed)
		h.Set("Access-Control-Allow-Credentials", "true")
		h.Set("Timing-Allow-Origin", "*")
		h.Set("Cross-Origin-Resource-Policy", "cross-origin")
		h.Set("Vary", "Accept")
	})
	for _, c := range []struct{ origin, want string }{{"*", ""}, {"null", ""}, {"https://shop.example", ""}, {"https://" + site, "https://" + f.name()}, {"https://" + site + ".evil.example", ""}} {
		allowed = c.origin
		h := f.ask("/", f.cookie).Header
		if got := h.Get("Access-Control-Allow-Origin"); got != c.want || c.want == "" && (h.Get("Access-Control-Allow-Credentials") != "" || h.Get("Timing-Allow-Origin") != "") {
			t.Errorf("%s: %v", c.origin, h)
		}
		if got := h.Values("Cross-Origin-Resource-Policy"); !slices.Equal(got, []string{"same-origin"}) || h.Get("Cross-Origin-Opener-Policy") != "same-origin-allow-popups" {
			t.Errorf("%v", h)
		}
		if got := strings.Join(h.Values("Vary"), ", "); got != "Sec-Fetch-Site, Accept" {
			t.Errorf("it varies by %s", got)
		}
	}
	for name, edit := range map[string]func(*http.Request){"without the capability": nil, "by another tenant's page": func(r *http.Request) { f.cookie(r); r.Header.Set("Sec-Fetch-Site", "same-site") }} {
		if r := f.ask("/", edit); r.StatusCode != 404 || r.Header.Get("Cross-Origin-Resource-Policy") != "same-origin" {
			t.Errorf("%s: %s %v", name, r.Status, r.Header)
		}
	}
}
