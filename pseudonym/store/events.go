package store

import (
	"maps"
	"strings"
	"sync"
)

// Event is something that happened at a store. Events name nobody, no site and no address.
type Event string

// Events. Those that begin with refused are requests that got nothing.
const (
	Registered    Event = "registered"
	Renewed       Event = "renewed"
	Revoked       Event = "revoked"
	Proved        Event = "proved"    // a proof of work was taken
	LoggedIn      Event = "logged_in" // an account was taken
	RefusedSite   Event = "refused_site"
	RefusedQuota  Event = "refused_quota"
	RefusedRate   Event = "refused_rate" // too many from one address
	RefusedProof  Event = "refused_proof"
	RefusedReplay Event = "refused_replay"
	RefusedLogin  Event = "refused_login"
	Failed        Event = "failed" // the database did not answer, or the provider of accounts
)

// Events are all of them.
var Events = []Event{Registered, Renewed, Revoked, Proved, LoggedIn, RefusedSite, RefusedQuota, RefusedRate, RefusedProof, RefusedReplay, RefusedLogin, Failed}

// counts is ready as it is.
type counts struct {
	mu sync.Mutex
	of map[Event]uint64
}

// note counts an event, and tells whoever keeps a log.
func (s *Store) note(e Event) {
	s.counts.mu.Lock()
	if s.counts.of == nil {
		s.counts.of = map[Event]uint64{}
	}
	s.counts.of[e]++
	s.counts.mu.Unlock()
	if s.o.Note != nil {
		s.o.Note(e)
	}
}

// Counts returns how often each event happened since the store began.
func (s *Store) Counts() map[Event]uint64 {
	all := make(map[Event]uint64, len(Events))
	for _, e := range Events {
		all[e] = 0
	}
	s.counts.mu.Lock()
	defer s.counts.mu.Unlock()
	maps.Copy(all, s.counts.of)
	return all
}

// Refused is how many requests got nothing, of some counts.
func Refused(counts map[Event]uint64) (n uint64) {
	for e, one := range counts {
		if strings.HasPrefix(string(e), "refused_") {
			n += one
		}
	}
	return n
}
