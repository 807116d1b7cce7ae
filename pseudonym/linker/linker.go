// Package linker leads a person who follows a link from one site of a cloud to another one to her own pseudonym of it, if the policy of
// section 4.3 of the paper allows it.
package linker

import (
	"context"
	"crypto/x509"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"heddle/pseudonym"
	"heddle/pseudonym/ca"
	"heddle/pseudonym/database"
	"heddle/pseudonym/store"
	"heddle/pseudonym/web"
)

// Linker answers requests for [pseudonym.Link.URL]. It is safe for concurrent use.
type Linker struct {
	zone pseudonym.Zone
	db   *database.DB
	log  *slog.Logger
	mux  *http.ServeMux

	count counter
}

// New returns a linker.
func New(zone pseudonym.Zone, db *database.DB, log *slog.Logger) *Linker {
	l := &Linker{zone: zone, db: db, log: log, mux: http.NewServeMux()}
	l.mux.HandleFunc("GET /{$}", l.follow)
	l.mux.HandleFunc("GET "+web.StylePath, web.Style)
	return l
}

// ServeHTTP implements [http.Handler].
func (l *Linker) ServeHTTP(w http.ResponseWriter, r *http.Request) { l.mux.ServeHTTP(w, r) }

// follow leads on: to the pseudonym; or by a page that asks first, for somebody who uses pseudonyms; or to the plain name.
func (l *Linker) follow(w http.ResponseWriter, r *http.Request) {
	if !navigates(r.Header) {
		l.count.none.Add(1)
		http.Error(w, "links are for people to follow", http.StatusForbidden)
		return
	}
	link := pseudonym.ParseLink(r.URL.Query())
	to, err := l.target(r.Context(), link.To)
	if errors.Is(err, pseudonym.ErrNone) {
		l.count.none.Add(1)
		web.Write(w, http.StatusNotFound, web.Message{Title: "This link leads nowhere", Text: "It leads to no site of this cloud."})
		return
	}
	var d decision
	if err == nil {
		d, err = l.decide(r, link, to)
	}
	if err != nil {
		l.count.failed.Add(1)
		l.log.Error("a link cannot be followed", "error", err)
		web.Write(w, http.StatusServiceUnavailable, web.Message{Title: "The linker cannot look", Text: "Its database does not answer.", Hint: "Try again later."})
		return
	}
	switch {
	case d.url != "":
		l.count.led.Add(1)
		go303(w, d.url)
	case !d.uses:
		l.count.plain.Add(1)
		go303(w, to.String())
	default:
		l.count.asked.Add(1)
		web.Write(w, http.StatusOK, web.GoOn{Site: to.Hostname(), URL: to.String(), Reason: d.reason, Store: d.store})
	}
}

// go303 leads on and leaves no trace: the answer is not kept, and the next site does not learn of the link.
func go303(w http.ResponseWriter, to string) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Referrer-Policy", "no-referrer")
	w.Header().Set("Location", to)
	w.WriteHeader(http.StatusSeeOther)
}

// navigates reports whether a person opens a page. A page of another site that loads a link as an image, a script or a frame, or ahead
// of time, could measure what comes (Fetch Metadata, sections 2.1 to 2.3).
func navigates(h http.Header) bool {
	mode, to := h.Get("Sec-Fetch-Mode"), h.Get("Sec-Fetch-Dest")
	return (mode == "" || mode == "navigate") && (to == "" || to == "document") && h.Get("Sec-Purpose") == "" && h.Get("Purpose") == ""
}

// target parses where a link leads. It fails with [pseudonym.ErrNone] for all but sites of the cloud.
func (l *Linker) target(ctx context.Context, text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.User != nil || u.Port() != "" {
		return nil, pseudonym.ErrNone
	}
	site, err := pseudonym.ParseHost(u.Hostname())
	if err != nil {
		return nil, pseudonym.ErrNone
	}
	if site == l.zone.Store() {
		return nil, pseudonym.ErrNone
	}
	u.Host = site
	_, err = l.db.Tenant(ctx, site)
	return u, err
}

// decision is what the linker does with a link.
type decision struct {
	url    string // of the pseudonym, or empty
	uses   bool   // the person uses pseudonyms, so that the plain name would show more than she expects
	reason web.Reason
	store  string // her entrance to the store, at the site
}

// decide applies the policy: the page with the link was made for a pseudonym of this person, and the target trusts its site. The
// certificate shows that it is her, and not the site, which sees the link too.
func (l *Linker) decide(r *http.Request, link pseudonym.Link, to *url.URL) (d decision, err error) {
	ctx, now, site := r.Context(), time.Now(), to.Hostname()
	from, err := l.referrer(ctx, link, now)
	if err != nil && !errors.Is(err, pseudonym.ErrNone) {
		return d, err
	}
	proved := err == nil
	var person pseudonym.Owner
	if c := certificate(r); c == nil {
		err = pseudonym.ErrNone
	} else {
		person, err = l.db.OwnerOf(ctx, l.zone.Store(), ca.KeyOf(c), now)
	}
	switch {
	case errors.Is(err, pseudonym.ErrNone):
		return decision{uses: proved, reason: web.NoCertificate}, nil
	case err != nil:
		return d, err
	}
	d = decision{uses: true, reason: web.NotTrusted}
	if d.store, err = l.entrance(ctx, person, site, now); err != nil {
		return d, err
	}
	if !proved || from.Owner != person {
		return d, nil
	}
	if from.Site != site {
		if trusts, err := l.db.Trusts(ctx, site, from.Site); err != nil || !trusts {
			return d, err
		}
	}
	p, err := l.db.OwnedOf(ctx, person, site, now)
	if errors.Is(err, pseudonym.ErrNone) {
		d.reason = web.NoPseudonym
		return d, nil
	}
	d.url = at(l.zone.Name(p.Label), to, p.Capability)
	return d, err
}

func certificate(r *http.Request) *x509.Certificate {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return nil
	}
	return r.TLS.PeerCertificates[0]
}

// referrer returns the pseudonym of the page that has a link. It fails with [pseudonym.ErrNone] if nothing proves that.
func (l *Linker) referrer(ctx context.Context, link pseudonym.Link, now time.Time) (p database.Pseudonym, err error) {
	if !pseudonym.IsLabel(string(link.From)) {
		return p, pseudonym.ErrNone
	}
	p, err = l.db.Get(ctx, link.From)
	if err == nil && (!p.Valid(now) || !link.Proved(p.Capability)) {
		err = pseudonym.ErrNone
	}
	return p, err
}

// entrance returns where a person gets a pseudonym of a site: at the store, by her own pseudonym of it.
func (l *Linker) entrance(ctx context.Context, person pseudonym.Owner, site string, now time.Time) (string, error) {
	p, err := l.db.OwnedOf(ctx, person, l.zone.Store(), now)
	if err != nil {
		return "", err
	}
	path, err := url.Parse(store.SitePath(site))
	if err != nil {
		return "", err
	}
	return at(l.zone.Name(p.Label), path, p.Capability), nil
}

// at returns a URL at a pseudonym, with its capability.
func at(name string, u *url.URL, c pseudonym.Capability) string {
	to := *u
	to.Scheme, to.Host = "https", name
	shown := url.Values{pseudonym.CapabilityKey: {c.String()}}.Encode()
	if to.RawQuery != "" {
		shown = to.RawQuery + "&" + shown
	}
	to.RawQuery = shown
	if to.Path == "" {
		to.Path = "/"
	}
	return to.String()
}
