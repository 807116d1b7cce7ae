package web

import (
	"errors"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"time"

	"heddle/disguise/cover"
	"heddle/internal/connlimit"
	"heddle/internal/upstream"
)

// How long the origin has, as nginx gives it by default, and how many of its idle connections are kept.
const (
	originConnect = time.Minute
	originAnswer  = time.Minute
	originIdle    = 64
)

// origin passes requests on to the operator's own site, and its answers back as they are.
type origin struct {
	to    httputil.ReverseProxy
	lines connlimit.Lines
}

func newOrigin(f cover.Front) *origin {
	dialer := &net.Dialer{Timeout: originConnect}
	dialer.SetMultipathTCP(false)
	o := &origin{}
	o.to = httputil.ReverseProxy{
		Transport: upstream.New(&http.Transport{DialContext: dialer.DialContext, ResponseHeaderTimeout: originAnswer,
			ExpectContinueTimeout: time.Second, DisableCompression: true, MaxIdleConnsPerHost: originIdle, IdleConnTimeout: originConnect}),
		Rewrite:      func(r *httputil.ProxyRequest) { direct(r, f) },
		ErrorHandler: o.failed,
		ErrorLog:     log.New(io.Discard, "", 0),
	}
	return o
}

// forwarded are the headers by which web servers tell others whose a request is.
var forwarded = []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"}

// direct sends a request to the origin. Visitors cannot lie to it about their addresses.
func direct(r *httputil.ProxyRequest, f cover.Front) {
	r.Out.URL.Scheme, r.Out.URL.Host = f.Origin.Scheme, f.Origin.Host
	r.Out.URL.RawQuery = r.In.URL.RawQuery // as the visitor wrote it
	r.Out.Host = r.In.Host
	if !f.Behind {
		r.Out.Header.Del("X-Real-Ip")
		r.SetXForwarded()
		return
	}
	for _, name := range forwarded {
		if said := r.In.Header[name]; said != nil {
			r.Out.Header[name] = said
		}
	}
}

// ServeHTTP implements [http.Handler].
func (o *origin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodConnect || !strings.HasPrefix(r.URL.Path, "/") {
		http.Error(w, http.StatusText(http.StatusBadRequest), http.StatusBadRequest)
		return
	}
	control := http.NewResponseController(w)
	// Otherwise net/http reads all of an HTTP/1.1 request before it sends the beginning of an answer, and the origin may answer early.
	_ = control.EnableFullDuplex()
	w.Header()["Date"], w.Header()["Content-Type"] = nil, nil // net/http adds neither of its own
	r.Body = upload{r.Body, control}
	defer control.SetReadDeadline(time.Time{}) //nolint:errcheck // the connection may be gone
	o.to.ServeHTTP(download{w, control}, r)
}

// failed answers as a web server does whose site is down.
func (o *origin) failed(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() == nil && o.lines.Take(time.Now()) {
		slog.Warn("the origin does not answer, so visitors get an error", "error", err, "hint", "start it, or mend origin")
	}
	status := http.StatusBadGateway
	if late, ok := errors.AsType[net.Error](err); ok && late.Timeout() {
		status = http.StatusGatewayTimeout
	}
	w.Header().Del("Date") // net/http adds its own
	http.Error(w, http.StatusText(status), status)
}

// upload is a body that has bodyPatience for each part.
type upload struct {
	io.ReadCloser
	control *http.ResponseController
}

func (u upload) Read(b []byte) (int, error) {
	_ = u.control.SetReadDeadline(time.Now().Add(bodyPatience))
	return u.ReadCloser.Read(b)
}

// download is an answer that has sendPatience for each part.
type download struct {
	http.ResponseWriter
	control *http.ResponseController
}

func (d download) Write(b []byte) (int, error) {
	_ = d.control.SetWriteDeadline(time.Now().Add(sendPatience))
	return d.ResponseWriter.Write(b)
}

// Unwrap is for [http.ResponseController].
func (d download) Unwrap() http.ResponseWriter { return d.ResponseWriter }
