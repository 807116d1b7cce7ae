package store

import (
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"heddle/internal/connlimit"
	"heddle/pseudonym"
	"heddle/pseudonym/ca"
	"heddle/pseudonym/ca/catest"
	"heddle/pseudonym/work"
)

// withProof is a request with the answer to a puzzle.
func withProof(t *testing.T, body string, p work.Puzzle) string {
	t.Helper()
	answer, err := work.Solve(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	var q Request
	if err := json.Unmarshal([]byte(body), &q); err != nil {
		t.Fatal(err)
	}
	q.Proof = &Proof{p.Text, answer}
	text, err := json.Marshal(q)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// full takes all places of an address, and returns the puzzle of the next one.
func full(t *testing.T, h http.Handler, from string) *work.Puzzle {
	t.Helper()
	for range 2 * connlimit.FailuresAtOnce {
		w := post(h, from, request(t, "news.example", catest.NewKey(t)))
		if w.Code != http.StatusTooManyRequests {
			continue
		}
		var p Problem
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
			t.Fatal(err)
		}
		return p.Work
	}
	t.Fatal("an address has places without end")
	return nil
}

// A person at a busy address gets in by a proof of work, once.
func TestProofOfWork(t *testing.T) {
	s := newShelf(t)
	h := s.Users()
	const from = "198.51.100.7:1"
	p := full(t, h, from)
	if p == nil {
		t.Fatal("no puzzle")
	}
	wrong := *p
	wrong.Text = "x" + wrong.Text[1:]
	fresh := func() string { return request(t, "news.example", catest.NewKey(t)) }
	good := withProof(t, fresh(), *p)
	for _, c := range []struct {
		name, body string
		status     int
	}{
		{"of another puzzle", withProof(t, fresh(), wrong), http.StatusBadRequest},
		{"of another site", withProof(t, request(t, "other.example", catest.NewKey(t)), *p), http.StatusNotFound}, // which costs nothing
		{"good", good, http.StatusCreated},
		{"replayed", good, http.StatusBadRequest},
		{"used for another request", withProof(t, fresh(), *p), http.StatusBadRequest},
	} {
		if w := post(h, from, c.body); w.Code != c.status {
			t.Errorf("%s: %d %s", c.name, w.Code, w.Body)
		}
	}
	n := s.Counts()
	if n[Proved] != 1 || n[RefusedProof] != 3 || n[RefusedSite] != 1 || n[RefusedRate] == 0 || n[Registered] != connlimit.FailuresAtOnce+1 {
		t.Errorf("%v", n)
	}
	s.o.Work = 0
	if p := full(t, s.Users(), from); p != nil {
		t.Errorf("a puzzle of a store that takes none: %+v", p)
	}
	if w := post(s.Users(), from, withProof(t, fresh(), s.gate.Puzzle(time.Now(), work.MinBits))); w.Code != http.StatusCreated {
		t.Errorf("a store that takes no proofs gives a place: %d", w.Code)
	}
}

// In a flood from many addresses each has one place, and proofs of work cost more.
func TestCrowd(t *testing.T) {
	var c crowd
	now := time.Unix(1_800_000_000, 0)
	for n, want := range map[float64]int{0: 0, crowded: 0, crowded + 1: 1, 2*crowded + 1: 2, 1000 * crowded: mostExtra} {
		c.n, c.at = n, now
		if got := c.extra(now); got != want {
			t.Errorf("%v people: %d", n, got)
		}
	}
	if c.n, c.at = 4, now; math.Abs(c.left(now.Add(time.Hour))-2) > 1e-9 || c.left(now.Add(-time.Hour)) != 4 {
		t.Errorf("%v, %v", c.left(now.Add(time.Hour)), c.left(now.Add(-time.Hour)))
	}

	s := newShelf(t)
	h := s.Users()
	s.crowd.n, s.crowd.at = 2*crowded, time.Now()
	for i, want := range []int{http.StatusCreated, http.StatusTooManyRequests} {
		w := post(h, "203.0.113.5:1", request(t, "news.example", catest.NewKey(t)))
		var p Problem
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || w.Code != want {
			t.Errorf("%d: %d %s", i, w.Code, w.Body)
		}
		if i == 1 && (p.Work == nil || p.Work.Bits <= s.gate.Puzzle(time.Now(), s.o.Work).Bits) {
			t.Errorf("the puzzle of a flood: %+v", p.Work)
		}
	}
	if w := post(h, "203.0.113.6:1", request(t, "news.example", catest.NewKey(t))); w.Code != http.StatusCreated {
		t.Errorf("another address: %d", w.Code)
	}
}

// A key has one pseudonym: who repeats the request of somebody else gets nothing.
func TestReplayedRegistration(t *testing.T) {
	s := newShelf(t)
	h := s.Users()
	body := request(t, "news.example", catest.NewKey(t))
	for i, want := range []int{http.StatusCreated, http.StatusConflict, http.StatusConflict} {
		if w := post(h, "198.51.100.8:1", body); w.Code != want {
			t.Errorf("%d: %d %s", i, w.Code, w.Body)
		}
	}
	if n := s.Counts(); n[RefusedReplay] != 2 || n[Registered] != 1 {
		t.Errorf("%v", n)
	}
}

// One who revokes what she gets does not fill the store either.
func TestQuotaCountsRevoked(t *testing.T) {
	s, o := newShelf(t), pseudonym.NewOwner()
	for i := range keepRevoked * s.o.Most {
		r, err := s.Register(t.Context(), "news.example", ca.KeyID{byte(i)}, o)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Revoke(t.Context(), r.Name, o); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Register(t.Context(), "news.example", ca.KeyID{99}, o); !errors.Is(err, ErrTooMany) {
		t.Errorf("%v", err)
	}
	if _, err := s.Register(t.Context(), "news.example", ca.KeyID{99}, pseudonym.NewOwner()); err != nil {
		t.Errorf("somebody else: %v", err)
	}
}

// A stranger without an address gets no place.
func TestPlaceNeedsAddress(t *testing.T) {
	s := newShelf(t)
	r := httptest.NewRequest(http.MethodPost, "/v1/pseudonyms", nil)
	r.RemoteAddr = "@"
	if (&users{Store: s.Store, strangers: connlimit.NewFailures()}).place(r, time.Now()) {
		t.Error("a place for no address")
	}
}
