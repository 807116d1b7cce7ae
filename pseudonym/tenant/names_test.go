package tenant

import (
	"net/http"
	"testing"
)

// A redirect within the site shows the capability to whom another site led there, since the cookie does not count then, and to nobody else.
func TestRedirectsKeepTheCapability(t *testing.T) {
	var status int
	var to string
	f := newFront(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", to)
		w.WriteHeader(status)
	})
	own, q := "https://"+f.name(), f.query()
	for _, c := range []struct {
		from     string
		status   int
		to, want string
	}{
		{"same-site", 302, "/a", "/a?" + q},
		{"cross-site", 307, "b?x=1#part", "b?x=1&" + q + "#part"},
		{"same-site", 301, "https://" + site + "/a?x", own + "/a?x&" + q},
		{"same-site", 301, "http://" + site, own + "?" + q},
		{"same-site", 302, "//elsewhere.example/", "//elsewhere.example/"},
		{"same-site", 302, "https://elsewhere.example/", "https://elsewhere.example/"},
		{"same-site", 302, "https://" + f.name() + ".elsewhere.example/", "https://" + f.name() + ".elsewhere.example/"},
		{"same-site", 302, "https://" + f.name() + "@elsewhere.example/", "https://" + f.name() + "@elsewhere.example/"},
		{"same-site", 302, "mailto:" + f.name(), "mailto:" + f.name()},
		{"same-site", 302, "///elsewhere.example/", "///elsewhere.example/"},
		{"same-site", 302, `/\elsewhere.example/`, `/\elsewhere.example/`},
		{"same-site", 302, `https://elsewhere.example\@` + f.name(), `https://elsewhere.example\@` + f.name()},
		{"same-site", 302, "https:/elsewhere.example/", "https:/elsewhere.example/"},
		{"same-site", 302, own + ":8443/", own + ":8443/"},
		{"same-site", 201, "/a", "/a"},
		{"same-origin", 302, "/a", "/a"},
		{"none", 302, "/a", "/a"},
		{"", 302, "/a", "/a"},
	} {
		status, to = c.status, c.to
		r := f.ask("/?"+q, func(r *http.Request) {
			if c.from != "" {
				r.Header.Set("Sec-Fetch-Site", c.from)
			}
		})
		if got := r.Header.Get("Location"); r.StatusCode != c.status || got != c.want {
			t.Errorf("%s %d %s: %d %s, not %s", c.from, c.status, c.to, r.StatusCode, got, c.want)
		}
	}
}
