package store

import (
	"context"
	"errors"
	"math"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"heddle/internal/connlimit"
	"heddle/internal/errhint"
	"heddle/pseudonym"
	"heddle/pseudonym/database"
	"heddle/pseudonym/work"
)

// personKey is the key of the context's value that has the person who asks.
type personKey struct{}

// person is whom the store knows.
type person struct {
	owner   pseudonym.Owner
	account bool // by her account, and not by her pseudonym of the store
}

// By says who makes a request: the person by whose pseudonym of the store it came.
func By(r *http.Request, o pseudonym.Owner) *http.Request { return by(r, person{owner: o}) }

func by(r *http.Request, p person) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), personKey{}, p))
}

func knownPerson(r *http.Request) (p person, known bool) {
	p, known = r.Context().Value(personKey{}).(person)
	return p, known
}

func owner(r *http.Request) (o pseudonym.Owner, known bool) {
	p, known := knownPerson(r)
	return p.owner, known
}

// Proof is the answer to a puzzle.
type Proof struct {
	Puzzle string `json:"puzzle"`
	Answer string `json:"answer"`
}

type hinted = errhint.Error

// tooFast says that strangers of one address register too often. Its puzzle opens the way all the same.
type tooFast struct {
	hinted
	puzzle *work.Puzzle // nil if the store takes none
}

// errLogin says that people need an account.
var errLogin = &errhint.Error{What: "the registration", Why: "this cloud asks for an account", Hint: "log in on the store's page"}

// who returns who registers. A stranger becomes a new person by an account, by a proof of work, or if there were not too many of
// her address.
func (u *users) who(r *http.Request, proof *Proof) (p person, known bool, err error) {
	if p, known = knownPerson(r); known {
		return p, true, nil
	}
	now := u.now()
	switch {
	case u.o.Login != nil:
		u.note(RefusedLogin)
		return p, false, errLogin
	case proof != nil && u.o.Work > 0:
		if err := u.spend(r.Context(), *proof); err != nil {
			return p, false, err
		}
	case !u.place(r, now):
		u.note(RefusedRate)
		return p, false, u.slower(now)
	}
	u.crowd.add(now)
	return person{owner: pseudonym.NewOwner()}, false, nil
}

// spend takes a proof of work, once.
func (u *users) spend(ctx context.Context, p Proof) error {
	id, until, err := u.gate.Check(u.now(), p.Puzzle, p.Answer)
	if err == nil {
		if err = u.o.Database.Spend(ctx, id, until); errors.Is(err, database.ErrExists) {
			err = work.ErrBad
		}
	}
	switch {
	case errors.Is(err, work.ErrBad):
		u.note(RefusedProof)
	case err == nil:
		u.note(Proved)
	}
	return err
}

// place takes the place of a stranger's address: ten at once, then one in six seconds. In a crowd one registration takes all ten, so
// that many addresses help little.
func (u *users) place(r *http.Request, now time.Time) bool {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return false
	}
	source := connlimit.Source(from.Addr())
	for n := u.crowd.places(now); n > 0; n-- {
		if !u.strangers.Take(source) {
			return false
		}
	}
	return true
}

// slower is the answer to one too many.
func (u *users) slower(now time.Time) error {
	slow := &tooFast{hinted: hinted{What: "the registration", Why: "there were too many from your address", Hint: "try again in a minute"}}
	if u.o.Work > 0 {
		p := u.gate.Puzzle(now, u.o.Work+u.crowd.extra(now))
		slow.puzzle = &p
	}
	return slow
}

// A crowd is so many new people within an hour. Each doubling doubles the work of the next ones.
const (
	crowded   = 1000
	mostExtra = 8
)

// crowd counts new people. It forgets half of them in an hour. The zero value is ready.
type crowd struct {
	mu sync.Mutex
	n  float64
	at time.Time
}

func (c *crowd) add(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n, c.at = c.left(now)+1, now
}

// left is how many are not forgotten. A clock that went back forgets nobody. c.mu is held.
func (c *crowd) left(now time.Time) float64 {
	return c.n * math.Exp2(-max(now.Sub(c.at).Hours(), 0))
}

// extra is by how much a proof of work is more expensive than in quiet times.
func (c *crowd) extra(now time.Time) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.left(now)
	if n <= crowded {
		return 0
	}
	return min(int(math.Log2(n/crowded))+1, mostExtra)
}

// places is how many places of an address one registration takes.
func (c *crowd) places(now time.Time) int {
	if c.extra(now) > 0 {
		return connlimit.FailuresAtOnce
	}
	return 1
}
