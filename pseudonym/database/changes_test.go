package database

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"heddle/pseudonym"
)

// line is a connection that listens. After a time it brings nothing; then it may still answer, as a pooler in between does.
type line struct {
	silent  time.Time
	answers bool
	echo    chan bool
}

func (l *line) ask(ctx context.Context) error {
	if time.Now().Before(l.silent) {
		l.echo <- true
	} else if !l.answers {
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

func (l *line) next(ctx context.Context) (pseudonym.Label, bool, error) {
	select {
	case <-l.echo:
		return "", true, nil
	case <-ctx.Done():
		return "", false, ctx.Err()
	}
}

// noticed leaves three of the five seconds in which a revocation has to take effect to those who ask then.
const noticed = 2 * time.Second

// A process finds out in time that changes do not come any more, whenever that begins, and also if somebody answers in place of PostgreSQL.
func TestLostChangesAreNoticedInTime(t *testing.T) {
	for name, answers := range map[string]bool{"silent": false, "a pooler answers": true} {
		for after := time.Duration(0); after < 2*askEvery; after += 100 * time.Millisecond {
			synctest.Test(t, func(t *testing.T) {
				silent := time.Now().Add(after)
				err := new(DB).hear(t.Context(), &line{silent, answers, make(chan bool, 1)})
				if late := time.Since(silent); !errors.Is(err, context.DeadlineExceeded) || late > noticed {
					t.Errorf("%s after %v: %v, %v late", name, after, err, late)
				}
			})
		}
	}
	// A connection that works is left alone.
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := new(DB).hear(ctx, &line{time.Now().Add(2 * time.Hour), true, make(chan bool, 1)}); ctx.Err() == nil {
			t.Error(err)
		}
	})
}
