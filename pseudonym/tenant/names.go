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
		}
	}
	r.Header["Set-Cookie"] = h.cookies(r.Header.Values("Set-Cookie"), e)
	if len(r.Header["Set-Cookie"]) == 0 {
		r.Header.Del("Set-Cookie")
	}
	for _, key := range []string{"Content-Security-Policy", "Content-Security-Policy-Report-Only", "Link", "Refresh"} {
		for i, value := range r.Header.Values(key) {
			r.Header[http.CanonicalHeaderKey(key)][i] = replaceHost(value, e.Site, name)
		}
	}
	// The site may want less, and never more.
	if policy := r.Header.Get("Referrer-Policy"); policy != "no-referrer" {
		r.Header.Set("Referrer-Policy", "same-origin")
	}
	r.Header.Set("Strict-Transport-Security", "max-age=31536000")
	if r.Header.Get("Cross-Origin-Opener-Policy") == "" {
		r.Header.Set("Cross-Origin-Opener-Policy", "same-origin-allow-popups")
	}
	r.Header.Del("Cross-Origin-Resource-Policy") // it has one already: see seal
	// Nobody but the site's own pages can ask for anything here, whomever the site permits that by its own name.
	if r.Header.Get("Access-Control-Allow-Origin") != "https://"+name {
		for _, key := range []string{"Access-Control-Allow-Origin", "Access-Control-Allow-Credentials", "Timing-Allow-Origin"} {
			r.Header.Del(key)
		}
	}
	for _, key := range []string{"Alt-Svc", "Public-Key-Pins", "Expect-CT", "Report-To", "NEL"} { // which name other places, or are kept for the name
		r.Header.Del(key)
	}
	host := page.NewHost(e.Site, name).WithLinks(link).WithForms(func(u *url.URL) (string, bool) { return h.formTo(u, e) })
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

// replaceHost replaces a host in a header of another syntax, where it is a whole name.
func replaceHost(text, from, to string) string {
	var b strings.Builder
	for {
		i := indexFold(text, from)
		if i < 0 {
			b.WriteString(text)
			return b.String()
		}
		end := i + len(from)
		whole := (i == 0 || !inName(text[i-1])) && (end == len(text) || !inName(text[end]))
		b.WriteString(text[:i])
		if whole {
			b.WriteString(to)
		} else {
			b.WriteString(text[i:end])
		}
		text = text[end:]
	}
}

// indexFold is [strings.Index] for names in ASCII, in any case. Headers may have bytes of other encodings, which lower case would make longer.
func indexFold(text, part string) int {
	for i := range len(text) - len(part) + 1 {
		if strings.EqualFold(text[i:i+len(part)], part) {
			return i
		}
	}
	return -1
}

func inName(c byte) bool {
	return c == '-' || c == '.' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
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
