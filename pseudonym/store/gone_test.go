package store

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"heddle/internal/pgtest"
	"heddle/internal/polltest"
	"heddle/pseudonym"
	"heddle/pseudonym/ca"
	"heddle/pseudonym/ca/catest"
)

// While PostgreSQL is gone people learn why they cannot register, and the store needs no restart afterwards.
func TestDatabaseGone(t *testing.T) {
	server := pgtest.Start(t)
	s := newShelfIn(t, server.Database(t))
	users, key := s.Users(), catest.NewKey(t)
	r, err := s.Register(t.Context(), "news.example", ca.KeyID{1}, pseudonym.NewOwner())
	if err != nil {
		t.Fatal(err)
	}
	server.Stop(t)
	if w := post(users, "192.0.2.1:1", request(t, "news.example", key)); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "its database does not answer") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if n := s.Counts(); n[Failed] != 1 || n[RefusedSite] != 0 {
		t.Errorf("%v", n)
	}
	server.Restart(t)
	polltest.Await(t, "a registration", func() bool {
		return post(users, "192.0.2.2:1", request(t, "news.example", key)).Code == http.StatusCreated
	})
	l, _ := zone.Label(r.Name)
	if _, err := s.Entry(t.Context(), l); err != nil {
		t.Errorf("a pseudonym of before: %v", err)
	}
}

// A clock outside the time of the issuing certificate signs nothing, and people learn why.
func TestClockOfTheStore(t *testing.T) {
	s := newShelf(t)
	right := s.now
	for _, wrong := range []int{-30, 30} {
		s.now = func() time.Time { return right().AddDate(wrong, 0, 0) }
		if w := post(s.Users(), "192.0.2.1:1", request(t, "news.example", catest.NewKey(t))); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "its clock is wrong") {
			t.Errorf("%d years: %d %s", wrong, w.Code, w.Body)
		}
	}
	s.now = right
	if w := post(s.Users(), "192.0.2.1:1", request(t, "news.example", catest.NewKey(t))); w.Code != http.StatusCreated {
		t.Errorf("when it is right again: %d %s", w.Code, w.Body)
	}
}
