package database

import (
	"context"
	"time"
)

// Clock returns how far time has come for what is deleted by its age. It begins at one time, goes on by at most so much with each call, and
// never beyond now. So nothing is lost because the clock of a store leaps ahead for a while.
func (d *DB) Clock(ctx context.Context, begin, now time.Time, most time.Duration) (at time.Time, err error) {
	if begin.After(now) {
		begin = now
	}
	if _, err := d.sql.ExecContext(ctx, `INSERT INTO clock (id, at) VALUES (1, $1) ON CONFLICT DO NOTHING`, begin.Unix()); err != nil {
		return at, err
	}
	seconds := int64(most / time.Second)
	if _, err := d.sql.ExecContext(ctx, `UPDATE clock SET at = CASE WHEN at + $1 < $2 THEN at + $1 ELSE $2 END WHERE at < $2`, seconds, now.Unix()); err != nil {
		return at, err
	}
	var unix int64
	err = d.sql.QueryRowContext(ctx, `SELECT at FROM clock`).Scan(&unix)
	return time.Unix(unix, 0), err
}

// Forget deletes pseudonyms that ended before a time, and returns how many. It deletes proofs of work that ended before now.
func (d *DB) Forget(ctx context.Context, before, now time.Time) (n int64, err error) {
	if _, err := d.sql.ExecContext(ctx, `DELETE FROM spent WHERE expires < $1`, now.Unix()); err != nil {
		return 0, err
	}
	for _, ended := range []string{`expires < $1`, `revoked <> 0 AND revoked < $1`} { // each by an index of its own
		r, err := d.sql.ExecContext(ctx, `DELETE FROM pseudonyms WHERE `+ended, before.Unix())
		if err != nil {
			return n, err
		}
		some, err := r.RowsAffected()
		if err != nil {
			return n, err
		}
		n += some
	}
	return n, nil
}
