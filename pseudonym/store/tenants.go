package store

import (
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"heddle/pseudonym"
	"heddle/pseudonym/ca"
)

// Tenants ask by these paths, with the certificate whose key the cloud knows.
const (
	EntryPath   = "/v1/tenant/pseudonyms/" // LABEL
	ChangesPath = "/v1/tenant/changes"
)

// BeatEvery is how often the store says that it is there, in a stream of changes. A sidecar that hears nothing for [BeatFor] asks
// again, and takes all that it knows for old.
const (
	BeatEvery = time.Second
	BeatFor   = 4 * time.Second
)

// Changed is one line of the stream of changes: a label, or an empty one if any may have changed. A line without any says that the
// store is there.
type Changed struct {
	Label *pseudonym.Label `json:"label,omitempty"`
}

// Tenants serves the sidecars of tenants. GET EntryPath+LABEL returns a [heddle/pseudonym/mutual.Entry] of the tenant's own, and GET
// ChangesPath a line of JSON for each change.
func (s *Store) Tenants() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+EntryPath+"{label}", s.tenant(s.sendEntry))
	mux.HandleFunc("GET "+ChangesPath, s.tenant(s.sendChanges))
	return mux
}

// tenant lets in the sidecars of tenants.
func (s *Store) tenant(f func(http.ResponseWriter, *http.Request, string)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
			http.Error(w, "no certificate", http.StatusForbidden)
			return
		}
		site, err := s.o.Database.SiteOf(r.Context(), ca.KeyOf(r.TLS.PeerCertificates[0]))
		switch {
		case errors.Is(err, pseudonym.ErrNone):
			http.Error(w, "the cloud does not know this tenant", http.StatusForbidden)
		case err != nil:
			s.o.Log.Error("cannot ask for a tenant", "error", err)
			http.Error(w, "the database does not answer", http.StatusServiceUnavailable)
		default:
			f(w, r, site)
		}
	}
}

// sendEntry tells a tenant of its own pseudonyms only: those of others are as unknown as those that nobody has.
func (s *Store) sendEntry(w http.ResponseWriter, r *http.Request, site string) {
	e, err := s.Entry(r.Context(), pseudonym.Label(r.PathValue("label")))
	switch {
	case err == nil && e.Site == site:
		writeJSON(w, http.StatusOK, e)
	case err == nil, errors.Is(err, pseudonym.ErrNone):
		http.NotFound(w, r)
	default:
		s.o.Log.Error("cannot ask for a pseudonym", "error", err)
		http.Error(w, "the database does not answer", http.StatusServiceUnavailable)
	}
}

// sendChanges tells of all labels, since those of others tell a tenant nothing.
func (s *Store) sendChanges(w http.ResponseWriter, r *http.Request, _ string) {
	changes, cancel := s.o.Database.Watch()
	defer cancel()
	out, flush := json.NewEncoder(w), http.NewResponseController(w)
	beat := time.NewTicker(BeatEvery)
	defer beat.Stop()
	for {
		var line Changed
		select {
		case <-r.Context().Done():
			return
		case c, ok := <-changes:
			if !ok {
				return
			}
			line.Label = &c.Label
		case <-beat.C:
		}
		_ = flush.SetWriteDeadline(time.Now().Add(BeatFor))
		if out.Encode(line) != nil || flush.Flush() != nil {
			return
		}
	}
}
