package cloud

import (
	"context"
	"time"

	"heddle/internal/netutil"
)

// A pseudonym that ended stays in the database for a while, so that an operator can look into complaints.
const (
	cleanEvery = time.Hour
	keepEnded  = 30 * 24 * time.Hour
	// A clock that leaps ahead would make all pseudonyms seem to have ended. So the age of what is deleted goes on by at most so much in
	// an hour, and the operator has days to notice.
	cleanStep = 24 * time.Hour
	// leap is by how much the clock may be ahead of that age before the log says so.
	leap = 2 * cleanStep
)

// clean deletes pseudonyms that ended long ago, until ctx ends.
func (c *Cloud) clean(ctx context.Context) {
	for step := time.Duration(0); ctx.Err() == nil; step = cleanStep { // a store that starts again and again makes no steps
		if n, err := c.cleanOnce(ctx, time.Now(), step); err != nil && ctx.Err() == nil {
			c.o.Log.Warn("pseudonyms that ended cannot be deleted", "error", err)
		} else if n > 0 {
			c.o.Log.Info("deleted pseudonyms that ended", "number", n)
		}
		_ = netutil.Sleep(ctx, cleanEvery)
	}
}

// cleanOnce deletes what ended so long ago that no leap of the clock can be the reason.
func (c *Cloud) cleanOnce(ctx context.Context, now time.Time, step time.Duration) (int64, error) {
	at, err := c.db.Clock(ctx, c.issuer.Since(), now, step)
	if err != nil {
		return 0, err
	}
	if ahead := now.Sub(at); ahead > leap {
		c.o.Log.Warn("the clock is ahead of what was deleted so far; pseudonyms that ended stay for now", "ahead", ahead.Round(time.Hour), "hint", "check the clock of this machine")
	}
	return c.db.Forget(ctx, at.Add(-keepEnded), at)
}
