package tenant

import (
	"net/http"
	"strings"
	"testing"

	"heddle/pseudonym"
	"heddle/pseudonym/mutual"
)

// redirect is one of the site, to a user whom another site led there or not.
type redirect struct {
	from     string
	status   int
	to, want string
}

// redirects are such with what becomes of them. One within the site shows the capability to whom another site led there, since the cookie does not
// count then, and to nobody else.
func redirects(e *mutual.Entry) []redirect {
	name, q := zone.Name(e.Label), pseudonym.CapabilityKey+"="+e.Capability.String()
	own := "https://" + name
	all := []redirect{
		{"same-site", 302, "/a", "/a?" + q},
		{"cross-site", 307, "b?x=1#part", "b?x=1&" + q + "#part"},
		{"same-site", 301, "https://" + site + "/a?x", own + "/a?x&" + q},
		{"same-site", 301, "http://" + site, own + "?" + q},
		{"same-site", 308, "HTTPS://" + strings.ToUpper(site) + ":443?a#b?c", own + "?a&" + q + "#b?c"},
		{"same-site", 302, own + "/a", own + "/a?" + q},
		{"same-site", 302, "?", "?&" + q},
		{"same-site", 302, "#part", "?" + q + "#part"},
		{"same-site", 302, "//" + site + "/a", "//" + name + "/a"},
		{"same-site", 302, "//elsewhere.example/", "//elsewhere.example/"},
		{"same-site", 302, "https://elsewhere.example/", "https://elsewhere.example/"},
		{"same-site", 302, "https://" + name + ".elsewhere.example/", "https://" + name + ".elsewhere.example/"},
		{"same-site", 302, "https://" + name + "@elsewhere.example/", "https://" + name + "@elsewhere.example/"},
		{"same-site", 302, "mailto:" + name, "mailto:" + name},
		{"same-site", 302, "///elsewhere.example/", "///elsewhere.example/"},
		{"same-site", 302, `/\elsewhere.example/`, `/\elsewhere.example/`},
		{"same-site", 302, `https://elsewhere.example\@` + name, `https://elsewhere.example\@` + name},
		{"same-site", 302, "https:/elsewhere.example/", "https:/elsewhere.example/"},
		{"same-site", 302, own + ":8443/", own + ":8443/"},
		{"same-site", 201, "/a", "/a"},
		{"same-origin", 302, "/a", "/a"},
		{"none", 302, "/a", "/a"},
		{"", 302, "/a", "/a"},
	}
	for _, to := range []string{
		"http://elsewhere.example/", "http://" + name + "/", "https://elsewhere.example:8443/?x=" + own, "https:elsewhere.example", "https:///elsewhere.example/", "/\t/elsewhere.example/", "\\\\elsewhere.example/",
		`/a\b`, `/a#\`, "https://" + site + ".elsewhere.example/", "https://elsewhere.example/" + site, "javascript:alert(1)", "a:b/c",
	} {
		all = append(all, redirect{"cross-site", 303, to, to})
	}
	return all
}

func TestRedirectsKeepTheCapability(t *testing.T) {
	var status int
	var to string
	f := newFront(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", to)
		w.WriteHeader(status)
	})
	for _, c := range redirects(f.e) {
		status, to = c.status, c.to
		r := f.ask("/?"+f.query(), func(r *http.Request) {
			if c.from != "" {
				r.Header.Set("Sec-Fetch-Site", c.from)
			}
		})
		if got := r.Header.Get("Location"); r.StatusCode != c.status || got != c.want {
			t.Errorf("%s %d %s: %d %s, not %s", c.from, c.status, c.to, r.StatusCode, got, c.want)
		}
	}
}
