package database

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"heddle/internal/netutil"
	"heddle/pseudonym"
)

// Change says that a pseudonym was renewed, revoked or removed; or with the label [pseudonym.Sites] that a site was added, moved or removed; or
// with [pseudonym.Hellos] that there is a new key for hellos; or with an empty label that anything may have been: the watcher has missed some.
type Change struct{ Label pseudonym.Label }

const (
	channel     = "heddle_pseudonyms"
	watchBuffer = 1024
	retryListen = time.Second
	askEvery    = time.Second            // whether PostgreSQL is there, on the connection that listens
	answerFor   = 2 * time.Second        // to that, and for a new connection
	lookEvery   = 500 * time.Millisecond // at SQLite's table
	keepChanges = 10_000                 // rows of it
)

// Watch returns the changes that any process makes from now on. Cancel ends it. A watcher that is slow, or a database that was gone,
// gets a change without a label.
func (d *DB) Watch() (changes <-chan Change, cancel func()) {
	w := make(chan Change, watchBuffer)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.watchers == nil {
		close(w)
		return w, func() {}
	}
	d.watchers[w] = true
	return w, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.watchers[w] {
			delete(d.watchers, w)
			close(w)
		}
	}
}

// change runs a statement, and tells all processes of a label that it changed: both, or neither. It fails with none if the statement changes
// nothing.
func (d *DB) change(ctx context.Context, l pseudonym.Label, none error, statement string, args ...any) error {
	return d.transact(ctx, func(tx *sql.Tx) ([]pseudonym.Label, error) {
		r, err := tx.ExecContext(ctx, statement, args...)
		return []pseudonym.Label{l}, affected(r, err, none)
	})
}

// transact runs write, and tells all processes of the labels that it returns: both, or neither.
func (d *DB) transact(ctx context.Context, write func(*sql.Tx) ([]pseudonym.Label, error)) error {
	tx, err := d.sql.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	labels, err := write(tx)
	if err != nil {
		return err
	}
	tell, args := `INSERT INTO changes (id, label) SELECT coalesce(max(id), 0) + 1, $1 FROM changes`, []any{}
	if d.pool != nil { // PostgreSQL tells it when it commits
		tell, args = `SELECT pg_notify($2, $1)`, []any{channel}
	}
	for _, l := range labels {
		if _, err := tx.ExecContext(ctx, tell, append([]any{string(l)}, args...)...); err != nil {
			return err
		}
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	if d.pool == nil { // this process need not wait until it looks
		for _, l := range labels {
			d.spread(Change{l})
		}
	}
	return nil
}

// spread tells the watchers of this process. It replaces all changes that wait for a slow watcher by one that stands for them.
func (d *DB) spread(c Change) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for w := range d.watchers {
		if len(w) < cap(w)-1 {
			w <- c
			continue
		}
		for len(w) > 0 {
			select {
			case <-w:
			default:
			}
		}
		w <- Change{}
	}
}

// listen passes on what other processes change, until ctx ends.
func (d *DB) listen(ctx context.Context) {
	once := d.listenOnce
	if d.pool == nil {
		once = d.lookOnce
	}
	for ctx.Err() == nil {
		if err := once(ctx); ctx.Err() == nil {
			d.log.Warn("the database is gone", "error", err)
			_ = netutil.Sleep(ctx, retryListen)
		}
	}
}

// listenOnce listens on one connection. Nothing arrives on one that is cut without a word, so it asks now and then whether PostgreSQL is there.
func (d *DB) listenOnce(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, answerFor)
	defer cancel()
	c, err := pgx.ConnectConfig(bounded, d.pool)
	if err != nil {
		return err
	}
	defer func() {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerFor)
		defer cancel()
		_ = c.Close(bounded)
	}()
	if _, err := c.Exec(bounded, `LISTEN `+channel); err != nil {
		return err
	}
	d.spread(Change{}) // what came before it listened
	for {
		n, err := hear(ctx, c)
		if err != nil {
			return err
		}
		if n != nil {
			d.spread(Change{pseudonym.Label(n.Payload)})
		}
	}
}

// hear returns the next change, or nil if there was none for a while.
func hear(ctx context.Context, c *pgx.Conn) (*pgconn.Notification, error) {
	waits, cancel := context.WithTimeout(ctx, askEvery)
	defer cancel()
	n, err := c.WaitForNotification(waits)
	if err == nil || !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
		return n, err
	}
	answers, cancel := context.WithTimeout(ctx, answerFor)
	defer cancel()
	return nil, c.Ping(answers)
}

// lookOnce passes on what any process noted in SQLite's table of changes.
func (d *DB) lookOnce(ctx context.Context) error {
	var last, least int64
	if err := d.sql.QueryRowContext(ctx, `SELECT coalesce(max(id), 0) FROM changes`).Scan(&last); err != nil {
		return err
	}
	d.spread(Change{})
	for {
		if err := netutil.Sleep(ctx, lookEvery); err != nil {
			return err
		}
		labels, err := labels(d.sql.QueryContext(ctx, `SELECT label FROM changes WHERE id > $1 ORDER BY id`, last))
		if err != nil {
			return err
		}
		if len(labels) == 0 {
			continue
		}
		if err := d.sql.QueryRowContext(ctx, `SELECT min(id) FROM changes`).Scan(&least); err != nil {
			return err
		}
		if least > last+1 {
			d.spread(Change{})
			last = least - 1
		}
		for _, l := range labels {
			d.spread(Change{l})
		}
		if last += int64(len(labels)); last-least > 2*keepChanges {
			if _, err := d.sql.ExecContext(ctx, `DELETE FROM changes WHERE id <= $1`, last-keepChanges); err != nil {
				return err
			}
		}
	}
}
