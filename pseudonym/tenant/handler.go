package tenant

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"

	"heddle/pseudonym"
	"heddle/pseudonym/mutual"
	"heddle/pseudonym/tenant/defence"
)

// handler admits requests that show the capability, and passes them to the site's own server.
type handler struct {
	names *mutual.Server
	zone  pseudonym.Zone
	hosts func(site string) bool // whether the cloud has a site
	log   *slog.Logger
	to    *httputil.ReverseProxy
	hides *defence.Defence // may be nil
}

// entryKey is the key of the context's value that has the pseudonym of a request.
type entryKey struct{}

func newHandler(zone pseudonym.Zone, names *mutual.Server, hosts func(string) bool, s defence.Strategy, to *url.URL, log *slog.Logger) *handler {
	h := &handler{names: names, zone: zone, hosts: hosts, log: log}
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
	if s != nil {
		h.hides = defence.New(s, h.to)
	}
	return h
}

// ServeHTTP implements [http.Handler].
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e, ok := h.names.Visit(w, r)
	if !ok {
		return
	}
	r = r.WithContext(context.WithValue(r.Context(), entryKey{}, e))
	if h.hides != nil {
		h.hides.Serve(w, r, string(e.Label))
	} else {
		h.to.ServeHTTP(w, r)
	}
}
