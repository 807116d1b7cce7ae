package cloud

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"heddle/internal/netutil"
	"heddle/pseudonym/ca"
	"heddle/pseudonym/database"
)

// A pseudonym that ended stays in the database for a while, so that an operator can look into complaints.
const (
	cleanEvery = time.Hour
	keepEnded  = 30 * 24 * time.Hour
	catchUp    = 2 // hours that the counted time may gain in one hour of running, so that it reaches the clock after a pause

	batchSize   = 1000
	mostBatches = 1000 // in one look
)

// ClockAhead is by how much the clock may be ahead of the time that the store counted before people are told.
const ClockAhead = 48 * time.Hour

// cleaner deletes pseudonyms that ended long ago. It goes by a time that the database has, and that grows with the time that stores run:
// a clock that jumps ahead would otherwise delete all pseudonyms at once.
type cleaner struct {
	db      *database.DB
	site    string    // the store's own
	from    time.Time // the issuing certificate is valid
	until   time.Time
	prolong func(context.Context, database.Pseudonym) error
	batch   int                  // pseudonyms of the store that are read at a time
	clock   func() time.Time     // may jump
	uptime  func() time.Duration // only grows as time passes
	log     *slog.Logger

	counted time.Time // as of at; zero before the first look
	at      time.Duration
	wrong   bool
	ahead   atomic.Int64 // of the clock, in seconds
}

func (c *Cloud) newCleaner() *cleaner {
	began := time.Now()
	return &cleaner{db: c.db, site: c.o.Zone.Store(), from: c.issuer.From(), until: c.issuer.Until(), prolong: c.store.Prolong, batch: batchSize, log: c.o.Log,
		clock: func() time.Time { return time.Now().Round(0) }, uptime: func() time.Duration { return time.Since(began) }}
}

// keep cleans until ctx ends.
func (c *cleaner) keep(ctx context.Context) {
	for ctx.Err() == nil {
		if err := c.once(ctx); err != nil && ctx.Err() == nil {
			c.log.Warn("pseudonyms that ended cannot be deleted", "error", err)
		}
		_ = netutil.Sleep(ctx, cleanEvery)
	}
}

func (c *cleaner) once(ctx context.Context) error {
	now := c.clock()
	if now.Before(c.from) || now.After(c.until) {
		c.ahead.Store(int64(max(now.Sub(later(c.counted, c.from)), 0) / time.Second))
		c.tell(true, "the clock is outside the time of the issuing certificate; nothing is deleted", "clock", now)
		return nil
	}
	counted, err := c.count(ctx, now)
	if err != nil {
		return err
	}
	ahead := now.Sub(counted)
	c.ahead.Store(int64(ahead / time.Second))
	c.tell(ahead > ClockAhead, "the clock is ahead of the time that the store has run; pseudonyms that ended are deleted later", "clock", now, "counted", counted)
	if err := c.prolongEntrances(ctx, now); err != nil {
		return fmt.Errorf("prolong pseudonyms of the store: %w", err)
	}
	n, err := c.db.Forget(ctx, counted.Add(-keepEnded), now)
	if n > 0 {
		c.log.Info("deleted pseudonyms that ended", "number", n)
	}
	return err
}

// tell warns once, until the clock is right again.
func (c *cleaner) tell(wrong bool, message string, args ...any) {
	if wrong && !c.wrong {
		c.log.Warn(message, args...)
	}
	c.wrong = wrong
}

// count brings the time of the database on: by what passed since the last look, or up to twice that if the clock is ahead. Several
// stores add what they ran from the time that each read, so that together they are no faster.
func (c *cleaner) count(ctx context.Context, now time.Time) (time.Time, error) {
	next, err := c.db.Counted(ctx)
	if err != nil {
		return next, err
	}
	up := c.uptime()
	if next.IsZero() { // there was no pseudonym to lose
		next = now
	}
	if !c.counted.IsZero() {
		next = later(next, c.counted.Add(catchUp*(up-c.at)))
	}
	next = later(next, c.from) // the operator signed then
	if next, err = c.db.Advance(ctx, next, now); err != nil {
		return next, err
	}
	c.counted, c.at = next, up
	return next, nil
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// prolongEntrances renews the pseudonyms of the store of people who have others, before they end or soon after: without hers a person
// could renew nothing. Her own certificate need not be made again, as the store knows her by its key.
func (c *cleaner) prolongEntrances(ctx context.Context, now time.Time) error {
	to := now.Add(prolongBefore)
	if last := c.until.Add(-prolongBefore); to.After(last) { // what ends with the issuing certificate gains nothing
		to = last
	}
	for range mostBatches {
		all, err := c.db.Ending(ctx, c.site, now.Add(-keepEnded), to, now, c.batch)
		if err != nil {
			return err
		}
		for _, p := range all {
			if err := c.prolong(ctx, p); err != nil {
				return err
			}
		}
		if len(all) < c.batch {
			return nil
		}
	}
	return nil
}

// prolongBefore is how long before its end a pseudonym of the store is renewed. [store.Store.Prolong] needs as much to gain.
const prolongBefore = 30 * 24 * time.Hour

// CheckClock returns by how much this machine's clock is ahead of the time that stores counted. It fails with [ca.ErrClock] if the
// issuing certificate is not valid yet, and with another error if that ended.
func CheckClock(ctx context.Context, o Options, db *database.DB, now time.Time) (ahead time.Duration, err error) {
	issuer, _, err := readIssuer(o.Dir, o.Zone, now)
	if err != nil {
		return 0, err
	}
	if now.Before(issuer.From()) {
		return 0, ca.ErrClock
	}
	counted, err := db.Counted(ctx)
	if err != nil || counted.IsZero() {
		return 0, err
	}
	return max(now.Sub(later(counted, issuer.From())), 0), nil
}
