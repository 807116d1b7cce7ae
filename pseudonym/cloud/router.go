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
	valid func(context.Context, []pseudonym.Label, time.Time) (map[pseudonym.Label]string, error)
	fresh time.Duration // of what the database said; see freshFor
	now   func() time.Time
	log   *slog.Logger

	// known has valid pseudonyms only, so that made-up names push nobody out.
	known *lru.Cache[pseudonym.Label, route]
	// unknown has when the database was asked for names that nobody has. With it such names cause the questions that valid ones cause, so that their
	// times do not tell who asks which is which. It is nil where names are told apart anyway.
	unknown *lru.Cache[pseudonym.Label, time.Time]
	// store is where names lead of which the router knows nothing, while the database does not answer. People with a pseudonym of the store learn the
	// reason there, and nobody else learns which names these are. It may be nil.
	store *route

	mu    sync.Mutex
	age   uint64    // counts changes
	since time.Time // of the last change of more than one pseudonym: what the database said before is not fresh
	gone  time.Time // when the database did not answer the last time
	stood time.Time // of the oldest answer that stands in since the database does not answer; zero while it does
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
	return &router{ask: ask, fresh: freshFor, now: time.Now, log: log, known: known}, err
}

// alike has names that nobody has cause the same questions as valid ones.
func (r *router) alike() (err error) {
	r.unknown, err = lru.New[pseudonym.Label, time.Time](knownRoutes)
	return err
}

// Route implements [gateway.Router].
func (r *router) Route(ctx context.Context, l pseudonym.Label) (gateway.Place, error) {
	found, err := r.find(ctx, l)
	return found.to, err
}

// Ended implements [gateway.Router].
func (r *router) Ended(ctx context.Context, labels []pseudonym.Label) (ended []pseudonym.Label, err error) {
	valid, err := r.valid(ctx, labels, r.now())
	if err != nil {
		return nil, err
	}
	for _, l := range labels {
		if valid[l] == "" {
			r.known.Remove(l)
			ended = append(ended, l)
		}
	}
	return ended, nil
}

var errAway = errors.New("the database did not answer a moment ago")

// find returns what the database says, or said.
func (r *router) find(ctx context.Context, l pseudonym.Label) (route, error) {
	now := r.now()
	before, ok := r.known.Get(l)
	age, since := r.state()
	recent := func(at time.Time) bool { return at.After(since) && now.Sub(at) < r.fresh }
	if ok = ok && !before.to.Ended(now); ok && recent(before.at) {
		return before, nil
	}
	if !ok && r.store != nil {
		before, ok = *r.store, true
		before.at = now
	}
	if r.unknown != nil {
		if at, none := r.unknown.Get(l); none && recent(at) {
			return route{}, pseudonym.ErrNone
		}
	}
	if ok = ok && now.Sub(before.at) < keepRoute; ok || r.unknown != nil {
		if r.away(now) {
			return r.standIn(before, ok, errAway)
		}
		bounded, cancel := context.WithTimeout(ctx, askFor)
		defer cancel()
		ctx = bounded
	}
	t, err := r.ask(ctx, l, now)
	found := route{t.Site, placeOf(t.Tenant), now}
	if !t.Until.IsZero() {
		found.to.Until = now.Add(t.Until.Sub(now)) // by the time that passes, and not by a clock that somebody sets
	}
	switch {
	case err == nil:
		r.learn(age, func() { r.known.Add(l, found) })
	case errors.Is(err, pseudonym.ErrNone):
		r.known.Remove(l)
		r.learn(age, func() {
			if r.unknown != nil {
				r.unknown.Add(l, now)
			}
		})
	case (ok || r.unknown != nil) && !errors.Is(err, context.Canceled):
		defer r.miss(now, err)
		return r.standIn(before, ok, err)
	}
	return found, err
}

// standIn returns what the database said before, or why there is nothing.
func (r *router) standIn(before route, ok bool, why error) (route, error) {
	if !ok {
		return route{}, why
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stood.IsZero() || before.at.Before(r.stood) {
		r.stood = before.at
	}
	return before, nil
}

// answerAge is how old the oldest answer is, in seconds, that stands in for the database; 0 while that answers.
func (r *router) answerAge() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stood.IsZero() {
		return 0
	}
	return int64(r.now().Sub(r.stood) / time.Second)
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

// learn notes that the database answered, and keeps the answer unless something changed after the question: the answer may be older than that.
func (r *router) learn(age uint64, keep func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stood = time.Time{}
	if age == r.age {
		keep()
	}
}

// many reports whether a change is one of more than a pseudonym.
func many(l pseudonym.Label) bool { return l == pseudonym.Sites || l == "" }

// follow takes a change to what it knows. That holds too if the database goes away before the next connection.
func (r *router) follow(ctx context.Context, l pseudonym.Label, sites func(context.Context) ([]database.Tenant, error)) {
	if r.drop(l); many(l) {
		r.look(ctx, sites)
	}
}

// drop has the database asked for what changed.
func (r *router) drop(l pseudonym.Label) {
	r.mu.Lock()
	defer r.mu.Unlock()
	one := !many(l)
	if one && r.unknown != nil { // else a question would tell that somebody had the name; the answer tells nothing, and is asked for again soon
		return
	}
	r.age++
	if one {
		r.known.Remove(l)
	} else {
		r.since = r.now()
	}
}

// look learns where sites are.
func (r *router) look(ctx context.Context, sites func(context.Context) ([]database.Tenant, error)) {
	ctx, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	all, err := sites(ctx)
	if err != nil {
		if r.lines.Take(r.now()) {
			r.log.Warn("the gateway does not learn where sites are now", "error", err)
		}
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
		r.log.Warn("the database does not answer; pseudonyms lead to where they did", "answer_age_s", r.answerAge(), "error", why)
	}
}
