package tenant

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"

	"heddle/pseudonym"
	"heddle/pseudonym/mutual"
)

// cookieName is of the cookie that has the capability once a client showed it. Only this host can set a cookie of such a name (RFC
// 6265bis, section 4.1.3.2), and browsers do not send it in requests that other sites make.
const cookieName = "__Host-pseudonym"

// handler admits requests that show the capability, and passes them to the site's own server.
type handler struct {
	names *mutual.Server
	zone  pseudonym.Zone
	log   *slog.Logger
	to    *httputil.ReverseProxy
}

// entryKey is the key of the context's value that has the pseudonym of a request.
type entryKey struct{}

func newHandler(zone pseudonym.Zone, names *mutual.Server, to *url.URL, log *slog.Logger) *handler {
	h := &handler{names: names, zone: zone, log: log}
	h.to = &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			e := r.In.Context().Value(entryKey{}).(*mutual.Entry)
			r.SetURL(to)
			r.Out.Host = e.Site
			r.SetXForwarded()
			r.Out.Header.Set("X-Forwarded-Host", e.Site)
			h.namesOut(r.Out.Header, e)
			encodings(r.Out.Header)
		},
		ModifyResponse: h.namesIn,
		FlushInterval:  -1, // events of the server leave at once
		ErrorLog:       slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if r.Context().Err() == nil {
				log.Warn("the site's server does not answer", "error", err)
			}
			http.Error(w, "the site does not answer", http.StatusBadGateway)
		},
	}
	return h
}

// ServeHTTP implements [http.Handler].
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.TLS == nil {
		http.NotFound(w, r)
		return
	}
	e, err := h.names.Pseudonym(r.Context(), *r.TLS)
	// A browser must not come by a name of another connection whose certificate fits, and HTTP/2 lets it try.
	if err != nil || !strings.EqualFold(hostOf(r.Host), h.zone.Name(e.Label)) {
		http.Error(w, http.StatusText(http.StatusMisdirectedRequest), http.StatusMisdirectedRequest)
		return
	}
	shown, admitted := h.capability(r, e)
	if !admitted {
		http.NotFound(w, r)
		return
	}
	if shown {
		http.SetCookie(w, &http.Cookie{Name: cookieName, Value: e.Capability.String(), Path: "/", Secure: true, HttpOnly: true, SameSite: http.SameSiteStrictMode, Expires: e.Expires})
	}
	h.to.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), entryKey{}, e)))
}

func hostOf(host string) string {
	name, _, ok := strings.Cut(host, ":")
	if ok && strings.Contains(host, "]") {
		return host
	}
	return name
}

// capability looks for the capability in the query, or else in the cookie if the request comes from the site itself or from no site
// (Fetch Metadata, section 2.2). It takes both out of the request. shown reports whether it was in the query.
func (h *handler) capability(r *http.Request, e *mutual.Entry) (shown, admitted bool) {
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
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "none", "same-origin":
		return shown, shown || kept
	}
	return shown, shown
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
			part = strings.TrimSpace(part)
			if value, ok := strings.CutPrefix(part, cookieName+"="); ok {
				found = append(found, value)
			} else if part != "" {
				others = append(others, part)
			}
		}
	}
	return strings.Join(others, "; "), found
}
