package tenant

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"strings"

	"heddle/internal/tlsbatch"
	"heddle/internal/upstream"
	"heddle/pseudonym"
	"heddle/pseudonym/mutual"
	"heddle/pseudonym/tenant/defence"
)

// handler admits requests that show the capability, and passes them to the site's own server.
type handler struct {
	names   *mutual.Server
	zone    pseudonym.Zone
	hosts   func(site string) bool // whether the cloud has a site
	rewrite []string
	inside  *inside // how a site in this process is reached
	to      *httputil.ReverseProxy
	hides   *defence.Defence // may be nil
	places  chan struct{}    // of those that write together
}

// entryKey is the key of the context's value that has the pseudonym of a request.
type entryKey struct{}

func newHandler(o Options, names *mutual.Server, hosts func(site string) bool) *handler {
	h := &handler{names: names, zone: o.Zone, hosts: hosts, rewrite: o.Rewrite, inside: newInside(), places: make(chan struct{}, largeBuffers)}
	way := newTransport()
	if o.Site != nil {
		way.DialContext = h.inside.dial
	}
	h.to = &httputil.ReverseProxy{
		Transport: whole{upstream.New(way), o.Rewrite},
		Rewrite: func(r *httputil.ProxyRequest) {
			e := r.In.Context().Value(entryKey{}).(*mutual.Entry)
			r.SetURL(o.To)
			r.Out.Host = e.Site
			r.SetXForwarded()
			r.Out.Header.Set("X-Forwarded-Host", e.Site)
			h.namesOut(r.Out.Header, e)
			encodings(r.Out.Header)
			// What else a connection may become, such as HTTP/2, could have requests that nobody checks.
			if !strings.EqualFold(r.Out.Header.Get("Upgrade"), "websocket") {
				r.Out.Header.Del("Upgrade")
				r.Out.Header.Del("Connection")
			}
		},
		ModifyResponse: h.namesIn,
		BufferPool:     newBuffers(),
		ErrorLog:       slog.NewLogLogger(o.Log.Handler(), slog.LevelWarn),
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if u, is := r.Context().Value(uploadKey{}).(*upload); is && u.hasStopped() { // the site's server may have ended the connection first
				http.Error(w, errStopped.Error(), http.StatusRequestTimeout)
				return
			}
			if r.Context().Err() == nil {
				o.Log.Warn("the site's server does not answer, or not as it should", "error", err)
			}
			http.Error(w, "the site does not answer", http.StatusBadGateway)
		},
	}
	if o.Defence != nil {
		h.hides = defence.New(o.Defence, h.to)
	}
	return h
}

// ServeHTTP implements [http.Handler].
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	seal(w.Header())
	e, ok := h.names.Visit(w, r)
	if !ok {
		return
	}
	if r.Method == http.MethodConnect { // nobody needs it, and what comes after it is no request
		w.WriteHeader(http.StatusNotImplemented)
		return
	}
	if strings.HasPrefix(r.URL.Path, formPath) {
		h.form(w, r, e)
		return
	}
	// By HTTP/1.1 the server of net/http reads and closes the body when an answer begins, while the proxy still passes it on: the
	// site's server would lose a part of an upload that it answers early, and the client an answer that comes at the upload's end.
	way := http.NewResponseController(w)
	_ = way.EnableFullDuplex()                                                               // HTTP/2 always is
	if below, is := r.Context().Value(belowKey{}).(*tlsbatch.Out); is && r.ProtoMajor == 1 { // a write of HTTP/2 may wait until the client takes more
		w = together{w, below, h.places}
	}
	answer := newEven(final{w}, r)
	defer answer.now() // what came of one that breaks off
	r = r.WithContext(context.WithValue(context.WithValue(r.Context(), entryKey{}, e), evenKey{}, answer))
	if r.ContentLength != 0 {
		body := &upload{ReadCloser: r.Body, way: way}
		defer body.end()
		r = r.WithContext(context.WithValue(r.Context(), uploadKey{}, body))
		r.Body = body
	}
	if h.hides != nil {
		h.hides.Serve(answer, r, string(e.Label))
	} else {
		h.to.ServeHTTP(answer, r)
	}
	answer.end()
}

// sealed are headers by which a browser keeps the objects of a pseudonym from pages of other origins, also those that it has in its cache. Other
// tenants are of the same site if the zone is not on the public suffix list, and share that cache.
var sealed = map[string]string{"Cross-Origin-Resource-Policy": "same-origin", "Vary": "Sec-Fetch-Site"}

func seal(header http.Header) {
	for key, value := range sealed {
		header.Set(key, value)
	}
}

// final drops interim answers of the site's server. Those with early hints would lead a browser to what they name.
type final struct{ http.ResponseWriter }

func (f final) WriteHeader(status int) {
	if status >= http.StatusOK || status == http.StatusSwitchingProtocols {
		f.ResponseWriter.WriteHeader(status)
	}
}

// Unwrap is for [http.ResponseController].
func (f final) Unwrap() http.ResponseWriter { return f.ResponseWriter }
