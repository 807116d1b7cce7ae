package mutual

import (
	"net/http"
	"strings"

	"heddle/pseudonym"
)

// CookieName is of the cookie that has the capability once a client showed it. Only this host can set a cookie of such a name (RFC
// 6265bis, section 4.1.3.2), and browsers do not send it in requests that other sites make.
const CookieName = "__Host-pseudonym"

// Visit returns the pseudonym of a request if its client may visit it, and takes the capability out of the request. Otherwise it
// answers: with 421 for a name that is not that of the connection, and with 404 without the capability.
func (s *Server) Visit(w http.ResponseWriter, r *http.Request) (e *Entry, ok bool) {
	if r.TLS == nil {
		http.NotFound(w, r)
		return nil, false
	}
	e, err := s.Pseudonym(r.Context(), *r.TLS)
	// A browser must not come by a name of another connection whose certificate fits, and HTTP/2 lets it try.
	if err != nil || !strings.EqualFold(hostOf(r.Host), s.zone.Name(e.Label)) {
		http.Error(w, http.StatusText(http.StatusMisdirectedRequest), http.StatusMisdirectedRequest)
		return nil, false
	}
	shown, admitted := e.capability(r)
	if !admitted {
		http.NotFound(w, r)
		return nil, false
	}
	if shown {
		http.SetCookie(w, &http.Cookie{Name: CookieName, Value: e.Capability.String(), Path: "/", Secure: true, HttpOnly: true, SameSite: http.SameSiteStrictMode, Expires: e.Expires})
	}
	return e, true
}

func hostOf(host string) string {
	name, _, ok := strings.Cut(host, ":")
	if ok && strings.Contains(host, "]") {
		return host
	}
	return name
}

// capability looks for the capability in the query, or else in the cookie if the request comes from the site itself or from no site. It takes both out of the request. shown reports whether it was in the query.
func (e *Entry) capability(r *http.Request) (shown, admitted bool) {
	if query, found := cutQuery(r.URL.RawQuery); len(found) > 0 {
		r.URL.RawQuery = query
		for _, one := range found {
			shown = shown || e.Capability.Is(one)
		}
	}
	kept := false
	cookies, found := cutCookies(r.Header.Values("Cookie"))
	for _, one := range found {
		kept = kept || e.Capability.Is(one)
	}
	if len(found) > 0 {
		r.Header.Del("Cookie")
		if cookies != "" {
			r.Header.Set("Cookie", cookies)
		}
	}
	return shown, shown || kept && !FromElsewhere(r.Header)
}

// FromElsewhere reports whether another site led to a request, or to what redirected to it (Fetch Metadata, section 2.2).
func FromElsewhere(header http.Header) bool {
	switch header.Get("Sec-Fetch-Site") {
	case "", "none", "same-origin":
		return false
	}
	return true
}

// cutQuery takes the capabilities out of a query, and leaves the rest as it is.
func cutQuery(query string) (rest string, found []string) {
	var others []string
	for part := range strings.SplitSeq(query, "&") {
		if value, ok := strings.CutPrefix(part, pseudonym.CapabilityKey+"="); ok {
			found = append(found, value)
		} else {
			others = append(others, part)
		}
	}
	return strings.Join(others, "&"), found
}

// cutCookies takes the capabilities out of the headers Cookie, and leaves the rest as it is.
func cutCookies(headers []string) (rest string, found []string) {
	var others []string
	for _, header := range headers {
		for part := range strings.SplitSeq(header, ";") {
			part = strings.Trim(part, " \t") // a page of another tenant can set a cookie for the zone whose name begins with another space
			if value, ok := strings.CutPrefix(part, CookieName+"="); ok {
				found = append(found, value)
			} else if part != "" {
				others = append(others, part)
			}
		}
	}
	return strings.Join(others, "; "), found
}
