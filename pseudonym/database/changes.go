package database

import (
	"context"
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
	retryListen = time.Second
	tellFor     = 5 * time.Second
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

// changed tells all processes.
func (d *DB) changed(ctx context.Context, l pseudonym.Label) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tellFor) // the change is made, whether its caller waits or not
	defer cancel()
	var err error
	if d.pool != nil {
		_, err = d.sql.ExecContext(ctx, `SELECT pg_notify($1, $2)`, channel, string(l))
	} else {
		d.spread(Change{l})
		_, err = d.sql.ExecContext(ctx, `INSERT INTO changes (id, label) SELECT coalesce(max(id), 0) + 1, $1 FROM changes`, l)
	}
	if err != nil {
		d.log.Warn("other processes do not learn of a change", "error", err)
		d.spread(Change{l})
	}
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

func (d *DB) listenOnce(ctx context.Context) error {
	c, err := pgx.ConnectConfig(ctx, d.pool)
	if err != nil {
		return err
	}
	defer c.Close(context.WithoutCancel(ctx))
	if _, err := c.Exec(ctx, `LISTEN `+channel); err != nil {
		return err
	}
	d.spread(Change{}) // what came before it listened
	for {
		n, err := c.WaitForNotification(ctx)
		if err != nil {
			return err
		}
		d.spread(Change{pseudonym.Label(n.Payload)})
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
		labels, err := d.labels(ctx, `SELECT label FROM changes WHERE id > $1 ORDER BY id`, last)
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
