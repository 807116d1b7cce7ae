package database

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"heddle/internal/netutil"
	"heddle/pseudonym"
)

// Change says that a pseudonym was renewed, revoked or removed; or with the label [pseudonym.Sites] that a site was added, moved or removed; or
// with [pseudonym.Hellos] that there is a new key for hellos; or with an empty label that anything may have been: the watcher has missed some.
type Change struct{ Label pseudonym.Label }

const (
	channel     = "heddle_pseudonyms"
	watchBuffer = 1024
	retryListen = time.Second            // between two connections that listen
	askEvery    = 500 * time.Millisecond // whether changes come, on the connection that listens
	answerFor   = time.Second            // to that, and for a new connection
	lookEvery   = 500 * time.Millisecond // at SQLite's table
	keepChanges = 10_000                 // rows of it
)

// Watch returns the changes that any process makes from now on. Cancel ends it. A watcher that is slow gets a change without a label, and so do all once
// changes may have been missed: within askEvery+answerFor after the connection that brings them broke, and about each second until there is another.
// So whoever asks the database after such a change knows of a revocation in time, also if it can only be asked.
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
		begin := time.Now()
		err := once(ctx)
		if ctx.Err() != nil {
			return
		}
		d.spread(Change{})
		if d.lines.Take(time.Now()) {
			d.log.Warn("the database is gone", "error", err)
		}
		_ = netutil.Sleep(ctx, retryListen-time.Since(begin))
	}
}

// listenOnce listens on one connection.
func (d *DB) listenOnce(ctx context.Context) error {
	l := &listening{echo: channel + "_" + strings.ToLower(rand.Text())}
	bounded, cancel := context.WithTimeout(ctx, answerFor)
	defer cancel()
	var err error
	if l.conn, err = pgx.ConnectConfig(bounded, d.pool); err != nil {
		return err
	}
	defer d.stopped.Go(func() { // watchers do not wait for it
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerFor)
		defer cancel()
		_ = l.conn.Close(bounded)
	})
	// An echo writes nothing that has to reach the disk.
	if _, err := l.conn.Exec(bounded, `SET synchronous_commit TO off; LISTEN `+channel+`; LISTEN `+l.echo); err != nil {
		return err
	}
	d.spread(Change{}) // what came before it listened
	return d.hear(ctx, l)
}

// listener is a connection that listens.
type listener interface {
	// ask has the database send an echo, on the way of changes.
	ask(context.Context) error
	// next waits for a change, or for the echo.
	next(context.Context) (l pseudonym.Label, echo bool, err error)
}

// listening is a connection to PostgreSQL. It tells of changes in the order in which they were committed, whatever their channel.
type listening struct {
	conn *pgx.Conn
	echo string // channel of this connection alone
}

func (l *listening) ask(ctx context.Context) error {
	_, err := l.conn.Exec(ctx, `NOTIFY `+l.echo)
	return err
}

func (l *listening) next(ctx context.Context) (pseudonym.Label, bool, error) {
	n, err := l.conn.WaitForNotification(ctx)
	if err != nil {
		return "", false, err
	}
	return pseudonym.Label(n.Payload), n.Channel == l.echo, nil
}

// hear spreads changes until they do not come any more. A connection may be cut without a word, or somebody in between may answer and pass no changes
// on. So the database is asked for an echo again and again: all changes before it came too.
func (d *DB) hear(ctx context.Context, l listener) error {
	for {
		if err := d.hearFor(ctx, l, askEvery, false); !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			return err
		}
		if err := d.hearFor(ctx, l, answerFor, true); err != nil {
			return err
		}
	}
}

// hearFor spreads what comes within a time, or until the echo that it asks for.
func (d *DB) hearFor(ctx context.Context, l listener, most time.Duration, asks bool) error {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	if asks {
		if err := l.ask(ctx); err != nil {
			return err
		}
	}
	for {
		label, echo, err := l.next(ctx)
		switch {
		case err != nil:
			return err
		case !echo:
			d.spread(Change{label})
		case asks:
			return nil
		}
	}
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
