package tenant

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"heddle/pseudonym"
	"heddle/pseudonym/mutual"
	"heddle/pseudonym/tenant/page"
)

// withURLs are headers of one URL, in requests and in answers.
var (
	requestURLs = []string{"Origin", "Referer", "Destination"}
	answerURLs  = []string{"Location", "Content-Location", "Access-Control-Allow-Origin"}
)

// permits let pages of other origins have something of an answer. dropped name other places, or are kept for the name.
var (
	permits = []string{"Access-Control-Allow-Origin", "Access-Control-Allow-Credentials", "Timing-Allow-Origin"}
	dropped = []string{"Alt-Svc", "Public-Key-Pins", "Expect-CT", "Report-To", "NEL"}
)

// namesOut gives the site's server its own name in place of the pseudonym.
func (h *handler) namesOut(header http.Header, e *mutual.Entry) {
	for _, key := range requestURLs {
		if value := header.Get(key); value != "" {
			header.Set(key, withHost(value, h.zone.Name(e.Label), e.Site))
		}
	}
}

// namesIn gives the client the pseudonym in place of the site's own name, and tells its browser to tell no other site of the
// pseudonym.
func (h *handler) namesIn(r *http.Response) error {
	e := r.Request.Context().Value(entryKey{}).(*mutual.Entry)
	name := h.zone.Name(e.Label)
	for _, key := range answerURLs {
		if value := r.Header.Get(key); value != "" {
			r.Header.Set(key, withHost(value, e.Site, name))
		}
	}
	link := func(u *url.URL) (string, bool) { return h.link(u, e) }
	if u, err := url.Parse(r.Header.Get("Location")); err == nil {
		if to, ok := link(u); ok {
			r.Header.Set("Location", to)
		} else if r.StatusCode/100 == 3 && mutual.FromElsewhere(r.Request.Header) && within(r.Header.Get("Location"), u, name) {
			r.Header.Set("Location", withCapability(r.Header.Get("Location"), e))
		}
	}
	r.Header["Set-Cookie"] = append(clearCookies(r), h.cookies(r.Header.Values("Set-Cookie"), e)...)
	if len(r.Header["Set-Cookie"]) == 0 {
		r.Header.Del("Set-Cookie")
	}
	host := page.NewHost(e.Site, name)
	for _, key := range []string{"Content-Security-Policy", "Content-Security-Policy-Report-Only", "Link", "Refresh"} {
		for i, value := range r.Header.Values(key) {
			r.Header[http.CanonicalHeaderKey(key)][i] = host.Names(value)
		}
	}
	// The site may want less, and never more.
	r.Header.Set("Referrer-Policy", page.ReferrerPolicy(r.Header.Get("Referrer-Policy")))
	r.Header.Set("Strict-Transport-Security", "max-age=31536000")
	if r.Header.Get("Cross-Origin-Opener-Policy") == "" {
		r.Header.Set("Cross-Origin-Opener-Policy", "same-origin-allow-popups")
	}
	r.Header.Del("Cross-Origin-Resource-Policy") // it has one already: see seal
	// Nobody but the site's own pages can ask for anything here, whomever the site permits that by its own name.
	if r.Header.Get("Access-Control-Allow-Origin") != "https://"+name {
		for _, key := range permits {
			r.Header.Del(key)
		}
	}
	for _, key := range dropped {
		r.Header.Del(key)
	}
	host = host.WithLinks(link).WithForms(func(u *url.URL) (string, bool) { return h.formTo(u, e) })
	if slices.Contains(h.rewrite, "scripts") {
		host = host.WithScripts()
	}
	return h.pages(r, host)
}

// link leads a link to another site of the cloud to the linker. ok is false for other links.
func (h *handler) link(u *url.URL, e *mutual.Entry) (to string, ok bool) {
	site := strings.ToLower(u.Hostname())
	if u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "" || u.Port() != "" || u.User != nil || !h.hosts(site) {
		return "", false
	}
	plain := *u
	if plain.Scheme == "" {
		plain.Scheme = "https"
	}
	return pseudonym.NewLink(plain.String(), e.Label, e.Capability).URL(h.zone), true
}

// within reports whether a URL leads browsers to a name. They read some as others that Go takes for paths (URL Standard, section 4.4).
func within(text string, u *url.URL, name string) bool {
	odd := func(r rune) bool { return r <= ' ' || r == '\\' }
	switch {
	case strings.ContainsFunc(text, odd) || strings.HasPrefix(text, "//"):
		return false
	case u.Scheme == "":
		return u.Host == ""
	}
	return u.Scheme == "https" && strings.EqualFold(u.Host, name)
}

// withCapability adds the capability to a URL of the site that a redirect leads to. If another site led to the redirect, the browser says of what
// follows that this site led there too, and the cookie does not count.
func withCapability(to string, e *mutual.Entry) string {
	to, fragment, found := strings.Cut(to, "#")
	if found {
		fragment = "#" + fragment
	}
	mark := "?"
	if strings.Contains(to, "?") {
		mark = "&"
	}
	return to + mark + pseudonym.CapabilityKey + "=" + e.Capability.String() + fragment
}

// withHost replaces the host of a URL if it is from.
func withHost(text, from, to string) string {
	u, err := url.Parse(text)
	if err != nil || !strings.EqualFold(u.Hostname(), from) {
		return text
	}
	u.Host = to // on the usual port
	if u.Scheme == "http" {
		u.Scheme = "https"
	}
	return u.String()
}

// clearCookies takes cookies out of what a browser is to clear (Clear Site Data, section 3.1), since that of the capability would go too. It
// returns what ends those of the request instead.
func clearCookies(r *http.Response) (ends []string) {
	const header = "Clear-Site-Data"
	var kept []string
	clears := false
	for part := range strings.SplitSeq(strings.Join(r.Header.Values(header), ","), ",") {
		switch part = strings.TrimSpace(part); part {
		case `"*"`:
			clears = true
			kept = append(kept, `"cache"`, `"storage"`)
		case `"cookies"`:
			clears = true
		default:
			kept = append(kept, part)
		}
	}
	if !clears {
		return nil
	}
	if r.Header.Del(header); len(kept) > 0 {
		r.Header.Set(header, strings.Join(kept, ", "))
	}
	return endsOf(r.Request)
}

// endsOf returns what ends the cookies of a request.
func endsOf(r *http.Request) (ends []string) {
	for _, c := range r.Cookies() {
		ends = append(ends, (&http.Cookie{Name: c.Name, Path: "/", MaxAge: -1, Secure: true}).String())
	}
	return ends
}

// cookies keeps cookies at the pseudonym: of the attributes Domain only the site's own is known, and it becomes the pseudonym alone. A
// cookie for the zone, or for another site, is dropped.
func (h *handler) cookies(all []string, e *mutual.Entry) (kept []string) {
	for _, text := range all {
		c, err := http.ParseSetCookie(text)
		if err != nil || strings.EqualFold(c.Name, mutual.CookieName) {
			continue
		}
		domain := strings.ToLower(strings.TrimPrefix(c.Domain, "."))
		if domain == "" {
			kept = append(kept, text)
			continue
		}
		if domain == e.Site || strings.HasSuffix(e.Site, "."+domain) {
			c.Domain = ""
			kept = append(kept, c.String())
		}
	}
	return kept
}
