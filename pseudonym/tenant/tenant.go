package tenant

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"heddle/internal/connlimit"
	"heddle/internal/errhint"
	"heddle/pseudonym"
	"heddle/pseudonym/gateway"
	"heddle/pseudonym/mutual"
	"heddle/pseudonym/tenant/defence"
)

// Options configure a sidecar.
type Options struct {
	Zone     pseudonym.Zone
	Stores   []string         // of the cloud, HOST:PORT
	TLS      *tls.Config      // with the tenant's certificate and the cloud's root, to ask the store
	To       *url.URL         // the site's own web server: http://HOST:PORT or https://HOST:PORT
	Site     http.Handler     // or the site itself, in this process
	Stream   string           // or its server that speaks something else, HOST:PORT or unix:FILE
	Gateways []netip.Prefix   // which say by the PROXY protocol who the client is; others are clients themselves
	Trusts   []string         // sites whose links may lead to pseudonyms of this one
	Defence  defence.Strategy // of pages, or nil
	Rewrite  []string         // what else than pages and style sheets has the site's name replaced: "scripts", "json"
	Size     int              // pseudonyms in memory
	Log      *slog.Logger
}

// Sidecar serves the clients of one tenant.
type Sidecar struct {
	o      Options
	source *source
	names  *mutual.Server
	site   *handler

	headerFor time.Duration // of a request
}

// clients are the limits of connections whose pseudonym was proved.
var clients = connlimit.Limits{All: 65_536, Network: 8192, Source: 1024}

// mostHeader bounds the header of a request, in bytes.
const mostHeader = 64 << 10

// headerFor bounds how long a client may take for the header of a request, and idleFor how long a connection may have none.
const (
	headerFor = 20 * time.Second
	idleFor   = 2 * time.Minute
	endFor    = 10 * time.Second
	dialFor   = 5 * time.Second // for the site's server, and for all stores
)

// New returns a sidecar.
func New(o Options) (*Sidecar, error) {
	from := newSource(o.Stores, o.TLS, o.Trusts, storeBeats, o.Log)
	s, err := newSidecar(o, from, from.hosts)
	if err == nil {
		s.source = from
	}
	return s, err
}

// newSidecar returns one that knows pseudonyms and the cloud's sites from elsewhere, and follows no store.
func newSidecar(o Options, from mutual.Source, hosts func(site string) bool) (*Sidecar, error) {
	s := &Sidecar{o: o, headerFor: headerFor}
	var err error
	if o.Stream != "" {
		s.names, err = mutual.NewServer(o.Zone, from, o.Size, streamProtocols...)
		return s, err
	}
	if o.Site != nil {
		s.o.To, o.To = insideURL, insideURL
	}
	if o.To.Scheme != "http" && o.To.Scheme != "https" || o.To.Host == "" {
		return nil, &errhint.Error{What: "to " + o.To.String(), Why: "it is no address of a web server", Hint: "such as http://127.0.0.1:8080"}
	}
	s.names, err = mutual.NewServer(o.Zone, from, o.Size, "h2", "http/1.1")
	s.site = newHandler(o, s.names, hosts)
	return s, err
}

// Status tells about a sidecar.
type Status struct {
	To   string `json:"to"`
	Live int    `json:"live"` // connections
	// Defence is what the defence of pages cost, if there is one.
	Defence *defence.Cost `json:"defence,omitempty"`
	Claim   string        `json:"claim,omitempty"` // what that defence hides and what it does not
}

// Status returns the state.
func (s *Sidecar) Status() Status {
	st := Status{To: s.o.Stream, Live: s.names.Live()}
	if s.site == nil {
		return st
	}
	if st.To = s.o.To.String(); s.site.hides != nil {
		cost := s.site.hides.Cost()
		st.Defence, st.Claim = &cost, s.site.hides.Claim()
	}
	return st
}

// Serve serves until ctx ends.
func (s *Sidecar) Serve(ctx context.Context, l net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		s.source.follow(ctx, func(l pseudonym.Label) { s.names.Forget(ctx, l) })
	}()
	defer func() { <-followed }()
	defer cancel()
	return s.serve(ctx, l)
}

func (s *Sidecar) serve(ctx context.Context, l net.Listener) error {
	if s.site == nil {
		return s.serveStream(ctx, l)
	}
	if s.o.Site != nil {
		defer s.site.inside.serve(s.o.Site)()
	}
	web := &http.Server{Handler: s.site, ConnContext: withBelow, TLSConfig: &tls.Config{NextProtos: []string{"h2", "http/1.1"}},
		ReadHeaderTimeout: s.headerFor, IdleTimeout: idleFor, MaxHeaderBytes: mostHeader, ErrorLog: slog.NewLogLogger(s.o.Log.Handler(), slog.LevelDebug)}
	ended := make(chan error, 1)
	go func() {
		ended <- web.Serve(s.names.Listener(ctx, gateway.Introduced(l, s.o.Gateways), connlimit.NewPlaces(clients)))
	}()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	end, stop := context.WithTimeout(context.WithoutCancel(ctx), endFor)
	defer stop()
	if web.Shutdown(end) != nil {
		web.Close()
	}
	l.Close()
	<-ended
	return nil
}
