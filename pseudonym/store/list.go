package store

import (
	"net/http"
	"strconv"
	"time"

	"heddle/pseudonym"
)

// sinceKey is in the query of EntryPath: from when on pseudonyms are listed, in seconds since 1970.
const sinceKey = "since"

// ListPath returns the path by which a tenant asks for the labels of its pseudonyms that were made at a time or later. A server that loads
// no certificate on demand, such as nginx, needs them.
func ListPath(since time.Time) string {
	return EntryPath + "?" + sinceKey + "=" + strconv.FormatInt(since.Unix(), 10)
}

func (s *Store) sendLabels(w http.ResponseWriter, r *http.Request, site string) {
	since, err := strconv.ParseInt(r.URL.Query().Get(sinceKey), 10, 64)
	if err != nil {
		http.Error(w, sinceKey+" is no time", http.StatusBadRequest)
		return
	}
	labels, err := s.o.Database.Labels(r.Context(), site, time.Unix(since, 0), s.now())
	if err != nil {
		s.o.Log.Error("cannot ask for the pseudonyms of a tenant", "error", err)
		http.Error(w, "the database does not answer", http.StatusServiceUnavailable)
		return
	}
	writeJSON(w, http.StatusOK, append([]pseudonym.Label{}, labels...))
}
