package tenant

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"heddle/pseudonym"
)

// nginx keeps pages of other origins from what a pseudonym has, as the sidecar does, also by the answers that it makes itself (requirement R5).
func TestNginxKeepsOtherOriginsOut(t *testing.T) {
	v, _ := newNginxVisit(t, serving(t, func(w http.ResponseWriter, r *http.Request) {
		var say map[string]string
		if err := json.Unmarshal([]byte(r.URL.Query().Get("say")), &say); err != nil {
			panic(http.ErrAbortHandler) // nginx answers itself
		}
		h := w.Header()
		h.Set("Access-Control-Allow-Credentials", "true")
		h.Set("Timing-Allow-Origin", "*")
		h.Set("Cross-Origin-Resource-Policy", "cross-origin")
		h.Set("Vary", "Accept")
		for _, key := range dropped {
			h.Set(key, "x")
		}
		for key, value := range say {
			h.Set(key, value)
		}
	}))
	const opener, referrer = "Cross-Origin-Opener-Policy", "Referrer-Policy"
	sealedIn := func(h http.Header) bool {
		return slices.Equal(h.Values("Cross-Origin-Resource-Policy"), []string{"same-origin"}) && slices.Contains(h.Values("Vary"), "Sec-Fetch-Site")
	}
	for _, protocol := range protocols {
		c := v.browser(t, protocol)
		ask := func(key, value string) http.Header {
			t.Helper()
			r, _ := v.get(t, c, "GET", "/?say="+url.QueryEscape(fmt.Sprintf("{%q:%q}", key, value)), nil)
			if r.StatusCode != http.StatusOK {
				t.Fatalf("%s: %s", protocol, r.Status)
			}
			return r.Header
		}
		for _, origin := range []string{"*", "null", "https://shop.example", "https://" + site} {
			h := ask("Access-Control-Allow-Origin", origin)
			for _, key := range append(slices.Clone(dropped), "Access-Control-Allow-Origin", "Access-Control-Allow-Credentials", "Timing-Allow-Origin") {
				if h[http.CanonicalHeaderKey(key)] != nil {
					t.Errorf("%s, %s: there is %s: %q", protocol, origin, key, h.Get(key))
				}
			}
			if !sealedIn(h) || !slices.Contains(h.Values("Vary"), "Accept") {
				t.Errorf("%s, %s: %v", protocol, origin, h)
			}
		}
		for _, one := range []struct{ key, value, want string }{
			{opener, "", "same-origin-allow-popups"}, {opener, "same-origin", "same-origin"}, {opener, "unsafe-none", "unsafe-none"},
			{referrer, "", "same-origin"}, {referrer, "unsafe-url", "same-origin"}, {referrer, "no-referrer", "no-referrer"}, {referrer, "no-referrer-when-downgrade", "same-origin"},
			{"Strict-Transport-Security", "max-age=0", "max-age=31536000"},
			{"Link", "</a.css>; rel=preload", "</a.css>; rel=preload"}, {"Link", "<https://" + strings.ToUpper(site) + "/a.css>; rel=preload", ""},
		} {
			if got := strings.Join(ask(one.key, one.value).Values(one.key), "|"); strings.Trim(got, "|") != one.want {
				t.Errorf("%s: %s: %s is %q, want %q", protocol, one.key, one.value, got, one.want)
			}
		}
		if r, _ := v.get(t, c, "GET", "/", nil); r.StatusCode != http.StatusBadGateway || !sealedIn(r.Header) {
			t.Errorf("%s: the site is away: %s %v", protocol, r.Status, r.Header)
		}
		if r, _ := v.get(t, c, "GET", "/?say={}", nil, "Sec-Fetch-Site", "same-site"); r.StatusCode != http.StatusNotFound || !sealedIn(r.Header) {
			t.Errorf("%s: by another tenant's page: %s %v", protocol, r.Status, r.Header)
		}
		c.Jar = nil
		if r, _ := v.get(t, c, "GET", "/?say={}", nil); r.StatusCode != http.StatusNotFound || !sealedIn(r.Header) {
			t.Errorf("%s: without the capability: %s %v", protocol, r.Status, r.Header)
		}
	}
}

// By nginx too a site that clears its cookies does not end the user's access.
func TestNginxClearSiteData(t *testing.T) {
	v, _ := newNginxVisit(t, serving(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Clear-Site-Data", r.Header.Get("X-Clear"))
		w.Header().Set("Set-Cookie", "new=1")
	}))
	for _, protocol := range protocols {
		for text, want := range clears {
			c := v.browser(t, protocol) // without cookies of before
			r, _ := v.get(t, c, "GET", "/", nil, "X-Clear", text, "Cookie", "a=1; b=2")
			if got := r.Header.Get("Clear-Site-Data"); got != want.header {
				t.Errorf("%s: %s is %q, want %q", protocol, text, got, want.header)
			}
			got := r.Header.Values("Set-Cookie")
			if slices.Sort(got); !slices.Equal(got, want.cookies) {
				t.Errorf("%s: %s: cookies %q, want %q", protocol, text, got, want.cookies)
			}
		}
		var many []string
		for i := range mostEnds + 1 {
			many = append(many, fmt.Sprintf("c%d=1", i))
		}
		r, _ := v.get(t, v.browser(t, protocol), "GET", "/", nil, "X-Clear", `"*"`, "Cookie", strings.Join(many, "; "))
		if got := r.Header.Values("Set-Cookie"); len(got) != mostEnds+1 {
			t.Errorf("%s: %d cookies: %q", protocol, len(got), got)
		}
	}
}

// By nginx too a redirect within the site shows the capability to whom another site led there, and to nobody else.
func TestNginxRedirectsKeepTheCapability(t *testing.T) {
	v, _ := newNginxVisit(t, serving(t, func(w http.ResponseWriter, r *http.Request) {
		status, _ := strconv.Atoi(r.FormValue("status"))
		w.Header().Set("Location", r.FormValue("to"))
		w.WriteHeader(status)
	}))
	q := pseudonym.CapabilityKey + "=" + v.Capability.String()
	all := append(redirects(v.Entry), redirect{"same-site", 302, "https://" + site + ":8443/a", "https://" + site + ":8443/a"})
	for _, protocol := range protocols {
		browser := v.browser(t, protocol).Transport
		for _, c := range all {
			ask := url.Values{"status": {strconv.Itoa(c.status)}, "to": {c.to}}.Encode() + "&" + q
			request, err := http.NewRequestWithContext(t.Context(), "GET", "https://"+v.name+"/?"+ask, nil)
			if err != nil {
				t.Fatal(err)
			}
			if c.from != "" {
				request.Header.Set("Sec-Fetch-Site", c.from)
			}
			r, err := browser.RoundTrip(request) // a client of net/http takes no URL that it cannot read
			if err != nil {
				t.Fatal(err)
			}
			r.Body.Close()
			if got := r.Header.Values("Location"); r.StatusCode != c.status || !slices.Equal(got, []string{c.want}) {
				t.Errorf("%s: %s %d %s: %d %s, not %s", protocol, c.from, c.status, c.to, r.StatusCode, got, c.want)
			}
		}
	}
}
