package cloud

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"heddle/internal/netutil"
	"heddle/pseudonym/database"
)

// opener opens a database. done closes it, unless others use it too.
type opener func(context.Context) (db *database.DB, done func(), err error)

// open is an opener. A nameserver starts without the database, and opens one of its own.
func (c *Cloud) open(ctx context.Context) (db *database.DB, done func(), err error) {
	if c.db != nil {
		return c.db, func() {}, nil
	}
	if db, err = openDatabase(ctx, c.o, false); err != nil {
		return nil, nil, err
	}
	return db, func() { db.Close() }, nil
}

// kept is something of the database that a process knows.
type kept struct {
	what string // for the log
	look func(context.Context, *database.DB, time.Time) error
	// told takes a change, and reports whether to look again.
	told func(context.Context, *database.DB, database.Change) bool
	log  *slog.Logger
}

// keep looks at once, each helloRead, and after changes, until ctx ends.
func (k kept) keep(ctx context.Context, open opener) {
	for ctx.Err() == nil {
		if err := k.follow(ctx, open); ctx.Err() == nil {
			k.log.Warn(k.what+" stay as they are", "error", err)
			_ = netutil.Sleep(ctx, helloFor)
		}
	}
}

func (k kept) follow(ctx context.Context, open opener) error {
	db, done, err := open(ctx)
	if err != nil {
		return err
	}
	defer done()
	changes, cancel := db.Watch()
	defer cancel()
	for {
		if err := k.look(ctx, db, time.Now()); err != nil {
			return err
		}
		again := time.After(helloRead)
		for waits := true; waits; {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-again:
				waits = false
			case c, ok := <-changes:
				if !ok {
					return errors.New("the database is closed")
				}
				waits = !k.told(ctx, db, c)
			}
		}
	}
}
