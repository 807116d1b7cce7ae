package cloud

import (
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"heddle/pseudonym"
	"heddle/pseudonym/database"
)

// own knows the pseudonyms of the store for the time in which the database does not answer, so that the store knows whom it tells the reason. Gateways
// lead to it all names then of which they know nothing. Nobody gets further by it: the store asks the database for each request.
type own struct {
	site string
	log  *slog.Logger
	all  atomic.Pointer[holders]

	since time.Time // from when the next look reads; zero is all
	whole time.Time // when it read all
}

type holders = lru.Cache[pseudonym.Label, database.Holder]

const (
	mostOwn  = 1 << 18 // some 300 bytes each; the last ones stay
	wholeOwn = time.Hour
	ownSkew  = 10 * time.Minute // by which clocks of stores may differ, and transactions be late
)

// newOwn reads all, so that a process that has just started knows them.
func newOwn(ctx context.Context, site string, db *database.DB, log *slog.Logger) *own {
	o := &own{site: site, log: log}
	if err := o.look(ctx, db, time.Now()); err != nil { // nothing else needs them
		log.Warn("the pseudonyms of the store are not known yet", "error", err)
	}
	o.since = time.Time{} // changes are not heard yet
	return o
}

// look reads which are new, and each hour all: those that were renewed, too.
func (o *own) look(ctx context.Context, db *database.DB, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, helloFor)
	defer cancel()
	if now.Sub(o.whole).Abs() >= wholeOwn {
		o.since = time.Time{}
	}
	found, err := db.Holders(ctx, o.site, o.since, now, mostOwn)
	if err != nil {
		o.since = time.Time{} // changes may be missed until the next look
		return err
	}
	all := o.all.Load()
	if o.since.IsZero() {
		if all, err = lru.New[pseudonym.Label, database.Holder](mostOwn); err != nil {
			return err
		}
		o.whole = now
	}
	for _, h := range slices.Backward(found) {
		all.Add(h.Label, h)
		o.since = h.Created.Add(-ownSkew)
	}
	o.all.Store(all)
	return nil
}

// told forgets a pseudonym that was renewed, revoked or removed. After changes that were missed the next look reads all, which can wait: it may be much,
// and nobody gets in by what is old.
func (o *own) told(_ context.Context, _ *database.DB, c database.Change) (look bool) {
	if c.Label == "" {
		o.since = time.Time{}
	} else if all := o.all.Load(); all != nil {
		all.Remove(c.Label)
	}
	return false
}

// find returns the holder of a pseudonym.
func (o *own) find(l pseudonym.Label) (h database.Holder, ok bool) {
	if all := o.all.Load(); all != nil {
		return all.Peek(l)
	}
	return h, false
}

// keepOwn knows them until ctx ends.
func (c *Cloud) keepOwn(ctx context.Context) {
	go kept{"pseudonyms of the store", c.own.look, c.own.told, c.o.Log}.keep(ctx, c.open)
}
