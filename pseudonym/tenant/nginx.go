package tenant

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"golang.org/x/sync/errgroup"

	"heddle/internal/atomicfile"
	"heddle/internal/errhint"
	"heddle/internal/netutil"
	"heddle/pseudonym"
	"heddle/pseudonym/ca"
	"heddle/pseudonym/mutual"
)

// Times of nginx's files.
const (
	listEvery = 2 * time.Second // for pseudonyms that are new
	listAll   = time.Hour       // for those that have ended
	overlap   = 5 * time.Second // of two lists, since their times are seconds of the store's clock
)

// loads bounds how many certificates are asked for at a time, and mostEnds how many cookies of a request one answer can end.
const (
	loads    = 16
	mostEnds = 16
)

// Nginx lets nginx serve the clients of a tenant, as in section 5.2 of the paper: nginx has the connections, and this keeps the certificates
// in its directory and says for each request whether it may pass.
//
//	DIR/nginx.conf       what nginx.conf includes
//	DIR/names/NAME.pem   certificates and keys, which nginx loads at each handshake
//	DIR/check.sock       where nginx asks
type Nginx struct {
	o      Options
	at     NginxAt
	source nginxSource
	names  *mutual.Server
	rename *handler
	every  time.Duration        // from one list to the next
	todo   chan pseudonym.Label // that changed; empty for all
}

// nginxSource is the store.
type nginxSource interface {
	mutual.Source
	labels(ctx context.Context, since time.Time) ([]pseudonym.Label, error)
	follow(ctx context.Context, forget func(pseudonym.Label))
}

// NginxAt says what nginx serves, and where.
type NginxAt struct {
	Site     string
	Dir      string // of the files
	Listen   string // where gateways come to, [HOST]:PORT
	ListenV6 string // where clients come to by pseudo-addresses, [HOST]:PORT; may be empty
}

// NewNginx returns what lets nginx serve a site.
func NewNginx(o Options, at NginxAt) (*Nginx, error) {
	from := newSource(o.Stores, o.TLS, o.Trusts, storeBeats, o.Log)
	return newNginx(o, at, from, from.hosts)
}

var safePath = regexp.MustCompile(`^/[A-Za-z0-9/._+-]*$`)

func newNginx(o Options, at NginxAt, from nginxSource, hosts func(string) bool) (*Nginx, error) {
	if !safePath.MatchString(at.Dir) {
		return nil, &errhint.Error{What: "the directory " + at.Dir, Why: "nginx's configuration cannot have its name", Hint: "take an absolute path of letters and digits"}
	}
	names, err := mutual.NewServer(o.Zone, from, o.Size)
	if err != nil {
		return nil, err
	}
	return &Nginx{o: o, at: at, source: from, names: names, rename: newHandler(o, names, hosts), every: listEvery, todo: make(chan pseudonym.Label, 1024)}, nil
}

// Serve writes the configuration and keeps the certificates until ctx ends. ready is called once all are there.
func (n *Nginx) Serve(ctx context.Context, ready func()) error {
	if err := os.MkdirAll(filepath.Join(n.at.Dir, "names"), 0o750); err != nil {
		return err
	}
	if err := atomicfile.Write(filepath.Join(n.at.Dir, "nginx.conf"), []byte(n.config()), 0o644); err != nil {
		return err
	}
	l, err := netutil.ListenUnix(filepath.Join(n.at.Dir, "check.sock"))
	if err != nil {
		return err
	}
	all, ctx := errgroup.WithContext(ctx)
	server := &http.Server{Handler: http.HandlerFunc(n.check), ReadHeaderTimeout: headerFor, MaxHeaderBytes: 2 * mostHeader, ErrorLog: slog.NewLogLogger(n.o.Log.Handler(), slog.LevelDebug)}
	all.Go(func() error {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	all.Go(func() error {
		<-ctx.Done()
		return server.Close()
	})
	all.Go(func() error {
		n.source.follow(ctx, func(l pseudonym.Label) {
			n.names.Forget(ctx, l)
			select {
			case n.todo <- l:
			case <-ctx.Done():
			}
		})
		return nil
	})
	all.Go(func() error { return n.keep(ctx, ready) })
	return all.Wait()
}

// keep has the files of all pseudonyms in the directory. It looks for new ones all the time.
func (n *Nginx) keep(ctx context.Context, ready func()) error {
	var since, whole time.Time
	tick := time.NewTicker(n.every)
	defer tick.Stop()
	for ctx.Err() == nil {
		now := time.Now()
		if now.Sub(whole) >= listAll {
			since = time.Time{}
		}
		if err := n.sync(ctx, since); err != nil {
			n.o.Log.Warn("the certificates are not those of now", "error", err)
		} else {
			if since.IsZero() {
				whole = now
			}
			since = now.Add(-overlap)
			if ready != nil {
				ready()
				ready = nil
			}
		}
		for waits := true; waits && ctx.Err() == nil; {
			select {
			case l := <-n.todo:
				if l == "" {
					for len(n.todo) > 0 { // all that waits is looked at now
						<-n.todo
					}
					since, waits = time.Time{}, false
				} else if l != pseudonym.Sites {
					n.fetch(ctx, l)
				}
			case <-tick.C:
				waits = false
			case <-ctx.Done():
			}
		}
	}
	return nil
}

// sync asks for pseudonyms that were made at a time or later. If that is the zero time it removes all files of others.
func (n *Nginx) sync(ctx context.Context, since time.Time) error {
	labels, err := n.source.labels(ctx, since)
	if err != nil {
		return err
	}
	var all errgroup.Group
	all.SetLimit(loads)
	mine := map[string]bool{}
	for _, l := range labels {
		if !pseudonym.IsLabel(string(l)) { // it becomes the name of a file
			continue
		}
		mine[filepath.Base(n.file(l))] = true
		if _, err := os.Stat(n.file(l)); err != nil || since.IsZero() {
			all.Go(func() error { n.fetch(ctx, l); return nil })
		}
	}
	_ = all.Wait()
	if !since.IsZero() {
		return nil
	}
	files, err := os.ReadDir(filepath.Join(n.at.Dir, "names"))
	for _, f := range files {
		if !mine[f.Name()] {
			err = errors.Join(err, os.Remove(filepath.Join(n.at.Dir, "names", f.Name())))
		}
	}
	return err
}

func (n *Nginx) file(l pseudonym.Label) string {
	return filepath.Join(n.at.Dir, "names", n.o.Zone.Name(l)+".pem")
}

// fetch writes the file of a pseudonym, or removes it if the pseudonym has ended. While the store is away it stays.
func (n *Nginx) fetch(ctx context.Context, l pseudonym.Label) {
	if !pseudonym.IsLabel(string(l)) {
		return
	}
	e, err := n.source.Pseudonym(ctx, l)
	if err == nil && e.Label == l && e.Site == n.at.Site {
		var b bytes.Buffer
		for _, der := range e.Chain {
			_ = pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: der})
		}
		_ = pem.Encode(&b, &pem.Block{Type: "PRIVATE KEY", Bytes: e.Key})
		err = atomicfile.Write(n.file(l), b.Bytes(), 0o640)
	} else if errors.Is(err, pseudonym.ErrNone) {
		if err = os.Remove(n.file(l)); errors.Is(err, fs.ErrNotExist) { // that of another site
			err = nil
		}
	}
	if err != nil && ctx.Err() == nil {
		n.o.Log.Warn("a certificate is not that of now", "error", err)
	}
}

// check answers nginx's question whether a request may pass: 204 with what it becomes, 401 without the capability, 403 from somebody
// else than the pseudonym's client.
func (n *Nginx) check(w http.ResponseWriter, r *http.Request) {
	state := &tls.ConnectionState{ServerName: r.Header.Get("Heddle-Name")}
	e, err := n.names.Pseudonym(r.Context(), *state)
	if err != nil || !shows(r.Header.Get("Heddle-Certificate"), e.Client) {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	to, err := url.ParseRequestURI(r.Header.Get("Heddle-Uri"))
	if err != nil {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	q := r.Clone(r.Context())
	q.URL, q.Host, q.TLS = to, r.Header.Get("Heddle-Host"), state
	answer := &verdict{header: http.Header{}}
	if _, ok := n.names.Visit(answer, q); !ok {
		status := http.StatusForbidden
		if answer.status == http.StatusNotFound {
			status = http.StatusUnauthorized
		}
		w.WriteHeader(status)
		return
	}
	n.rename.namesOut(q.Header, e)
	led := "" // the capability, if another site led here
	if mutual.FromElsewhere(q.Header) {
		led = e.Capability.String()
	}
	for key, value := range map[string]string{"Uri": q.URL.RequestURI(), "Led": led, "Cookies": q.Header.Get("Cookie"), "Origin": q.Header.Get("Origin"), "Referer": q.Header.Get("Referer"),
		"Set-Cookie": answer.header.Get("Set-Cookie")} {
		if value != "" {
			w.Header().Set("Heddle-"+key, value)
		}
	}
	for i, end := range endsOf(q) {
		if i < mostEnds {
			w.Header().Set(fmt.Sprint("Heddle-End-", i), end)
		}
	}
	w.WriteHeader(http.StatusNoContent)
}

// shows reports whether a certificate, as nginx writes it in a header, has a key. TLS has shown that the client has the key.
func shows(escaped string, key ca.KeyID) bool {
	text, err := url.PathUnescape(escaped)
	block, _ := pem.Decode([]byte(text))
	if err != nil || block == nil {
		return false
	}
	c, err := x509.ParseCertificate(block.Bytes)
	return err == nil && ca.KeyOf(c) == key
}

// verdict notes an answer.
type verdict struct {
	header http.Header
	status int
}

func (v *verdict) Header() http.Header         { return v.header }
func (v *verdict) Write(b []byte) (int, error) { return len(b), nil }
func (v *verdict) WriteHeader(status int)      { v.status = status }
