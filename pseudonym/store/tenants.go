package store

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"time"

	"heddle/pseudonym"
	"heddle/pseudonym/ca"
	"heddle/pseudonym/mutual"
	"heddle/pseudonym/recheck"
)

// Tenants ask by these paths, with the certificate whose key the cloud knows.
const (
	EntryPath   = "/v1/tenant/pseudonyms/" // LABEL
	ChangesPath = "/v1/tenant/changes"
	SitesPath   = "/v1/tenant/sites"
	TrustsPath  = "/v1/tenant/trusts"
	EndedPath   = "/v1/tenant/ended"
)

// BeatEvery is how often the store says that it is there, in a stream of changes. A sidecar that hears nothing for [BeatFor] asks
// again, and takes all that it knows for old.
const (
	BeatEvery = 500 * time.Millisecond
	BeatFor   = mutual.SureFor
)

// Changed is one line of the stream of changes: a label; or [pseudonym.Sites]; or an empty one if anything may have changed. A line
// without any says that the store is there.
type Changed struct {
	Label *pseudonym.Label `json:"label,omitempty"`
}

// Tenants serves the sidecars of tenants. GET EntryPath+LABEL returns a [heddle/pseudonym/mutual.Entry] of the tenant's own, and GET
// ChangesPath a line of JSON for each change. GET SitesPath returns the names of all sites, since links to them lead to the linker. PUT
// TrustsPath takes the sites whose links may lead to pseudonyms of the tenant. POST EndedPath takes labels, and returns those that are no valid pseudonyms
// of the tenant.
func (s *Store) Tenants() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+EntryPath+"{label}", s.tenant(s.sendEntry))
	mux.HandleFunc("GET "+EntryPath+"{$}", s.tenant(s.sendLabels))
	mux.HandleFunc("GET "+ChangesPath, s.tenant(s.sendChanges))
	mux.HandleFunc("GET "+SitesPath, s.tenant(s.sendSites))
	mux.HandleFunc("PUT "+TrustsPath, s.tenant(s.takeTrusts))
	mux.HandleFunc("POST "+EndedPath, s.tenant(s.sendEnded))
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

func (s *Store) sendSites(w http.ResponseWriter, r *http.Request, _ string) {
	tenants, err := s.o.Database.Tenants(r.Context())
	if err != nil {
		s.o.Log.Error("cannot ask for the sites", "error", err)
		http.Error(w, "the database does not answer", http.StatusServiceUnavailable)
		return
	}
	sites := []string{}
	for _, t := range tenants {
		if t.Site != s.o.Zone.Store() {
			sites = append(sites, t.Site)
		}
	}
	writeJSON(w, http.StatusOK, sites)
}

// mostTrusts is how many sites a tenant may trust.
const mostTrusts = 1000

func (s *Store) takeTrusts(w http.ResponseWriter, r *http.Request, site string) {
	var referrers []string
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, mostTrusts*256)).Decode(&referrers)
	for i := range referrers {
		if err == nil {
			referrers[i], err = pseudonym.ParseHost(referrers[i])
		}
	}
	if err != nil || len(referrers) > mostTrusts {
		http.Error(w, "the sites are no list of host names, or too many", http.StatusBadRequest)
		return
	}
	if err := s.o.Database.PutTrust(r.Context(), site, referrers); err != nil {
		s.o.Log.Error("cannot note whom a tenant trusts", "error", err)
		http.Error(w, "the database does not answer", http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// sendEnded tells as little of others' pseudonyms as sendEntry.
func (s *Store) sendEnded(w http.ResponseWriter, r *http.Request, site string) {
	var labels []pseudonym.Label
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, recheck.AtOnce*64)).Decode(&labels)
	if err != nil || len(labels) > recheck.AtOnce {
		http.Error(w, "the labels are no list, or too many", http.StatusBadRequest)
		return
	}
	valid, err := s.o.Database.Valid(r.Context(), labels, s.now())
	if err != nil {
		s.o.Log.Error("cannot ask which pseudonyms ended", "error", err)
		http.Error(w, "the database does not answer", http.StatusServiceUnavailable)
		return
	}
	writeJSON(w, http.StatusOK, slices.DeleteFunc(labels, func(l pseudonym.Label) bool { return valid[l] == site }))
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
