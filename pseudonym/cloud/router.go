package cloud

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"heddle/internal/connlimit"
	"heddle/pseudonym"
	"heddle/pseudonym/database"
	"heddle/pseudonym/gateway"
)

// router implements [gateway.Router]. It keeps what the database said until that tells of a change, and asks again after a few seconds even
// without one. While the database does not answer, it goes by what that said last: nothing can be revoked there meanwhile, and sidecars
// judge by themselves.
type router struct {
	ask   func(context.Context, pseudonym.Label, time.Time) (database.Route, error)
	fresh time.Duration // of what the database said; see freshFor
	log   *slog.Logger

	// known has valid pseudonyms only, so that made-up names push nobody out.
	known *lru.Cache[pseudonym.Label, route]
	mu    sync.Mutex
	age   uint64    // counts changes
	since time.Time // of the last change of more than one pseudonym: what the database said before is not fresh
	gone  time.Time // when the database did not answer the last time
	lines connlimit.Lines
}

// route is what the database said, and when it was asked.
type route struct {
	site string
	to   gateway.Place
	at   time.Time
}

const (
	knownRoutes = 100_000 // some 200 bytes each
	// freshFor bounds how late a gateway learns that a pseudonym was revoked, if the message about that got lost.
	freshFor  = 3 * time.Second
	keepRoute = 24 * time.Hour  // what is older is not used
	askFor    = time.Second     // if the answer of before can stand in
	goneFor   = 2 * time.Second // without another question, so that connections do not wait each time
)

func newRouter(ask func(context.Context, pseudonym.Label, time.Time) (database.Route, error), log *slog.Logger) (*router, error) {
	known, err := lru.New[pseudonym.Label, route](knownRoutes)
	return &router{ask: ask, fresh: freshFor, log: log, known: known}, err
}

// Route implements [gateway.Router].
func (r *router) Route(ctx context.Context, l pseudonym.Label) (gateway.Place, error) {
	found, err := r.find(ctx, l)
	return found.to, err
}

// find returns what the database says, or said.
func (r *router) find(ctx context.Context, l pseudonym.Label) (route, error) {
	now := time.Now()
	before, ok := r.known.Get(l)
	ok = ok && !before.to.Ended(now)
	age, since := r.state()
	if ok && before.at.After(since) && now.Sub(before.at) < r.fresh {
		return before, nil
	}
	if ok = ok && now.Sub(before.at) < keepRoute; ok {
		if r.away(now) {
			return before, nil
		}
		bounded, cancel := context.WithTimeout(ctx, askFor)
		defer cancel()
		ctx = bounded
	}
	t, err := r.ask(ctx, l, now)
	found := route{t.Site, placeOf(t.Tenant), now}
	found.to.Until = t.Until
	switch {
	case err == nil:
		r.learn(l, found, age)
	case errors.Is(err, pseudonym.ErrNone):
		r.known.Remove(l)
	case ok && !errors.Is(err, context.Canceled):
		r.miss(now, err)
		return before, nil
	}
	return found, err
}

func placeOf(t database.Tenant) gateway.Place {
	return gateway.Place{Addresses: t.Addresses, Key: t.Client}
}

// state returns the number of changes so far, and what the database has to have said later to be fresh.
func (r *router) state() (age uint64, since time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.age, r.since
}

// learn keeps an answer, unless something changed after the question: the answer may be older than that.
func (r *router) learn(l pseudonym.Label, answer route, age uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if age == r.age {
		r.known.Add(l, answer)
	}
}

// follow takes changes to what it knows. They hold too if the database goes away before the next connection.
func (r *router) follow(ctx context.Context, l pseudonym.Label, sites func(context.Context) ([]database.Tenant, error)) {
	one := l != pseudonym.Sites && l != ""
	r.mu.Lock()
	if r.age++; one {
		r.known.Remove(l)
	} else {
		r.since = time.Now()
	}
	r.mu.Unlock()
	if one {
		return
	}
	all, err := sites(ctx)
	if err != nil {
		r.log.Warn("the gateway does not learn where sites are now", "error", err)
		return
	}
	at := map[string]gateway.Place{}
	for _, t := range all {
		at[t.Site] = placeOf(t)
	}
	for _, l := range r.known.Keys() {
		known, ok := r.known.Peek(l)
		switch to, there := at[known.site]; {
		case !ok:
		case !there:
			r.known.Remove(l)
		case !slices.Equal(to.Addresses, known.to.Addresses) || to.Key != known.to.Key:
			to.Until = known.to.Until
			r.known.Add(l, route{known.site, to, known.at})
		}
	}
}

// away reports whether the database did not answer a moment ago.
func (r *router) away(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return now.Sub(r.gone) < goneFor
}

// miss notes that the database does not answer.
func (r *router) miss(now time.Time, why error) {
	r.mu.Lock()
	r.gone = now
	r.mu.Unlock()
	if r.lines.Take(now) {
		r.log.Warn("the database does not answer; pseudonyms lead to where they did", "error", why)
	}
}
