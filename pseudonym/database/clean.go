package database

import (
	"context"
	"database/sql"
	"errors"
	"time"
)

// Counted returns the time that stores counted while they ran, or the zero time in a database that is new.
func (d *DB) Counted(ctx context.Context) (time.Time, error) {
	var at int64
	err := d.sql.QueryRowContext(ctx, `SELECT counted FROM clock`).Scan(&at)
	if errors.Is(err, sql.ErrNoRows) {
		return time.Time{}, nil
	}
	return time.Unix(at, 0), err
}

// Advance brings the time of [DB.Counted] on, and returns it. It stays where it is if another process has brought it further, and goes back
// to the clock if it is later than that.
func (d *DB) Advance(ctx context.Context, to, clock time.Time) (time.Time, error) {
	if to.After(clock) {
		to = clock
	}
	var at int64
	err := d.sql.QueryRowContext(ctx, `INSERT INTO clock (id, counted) VALUES (1, $1) ON CONFLICT (id) DO UPDATE SET counted =
		CASE WHEN clock.counted > $2 THEN $2 WHEN clock.counted > excluded.counted THEN clock.counted ELSE excluded.counted END
		RETURNING counted`, to.Unix(), clock.Unix()).Scan(&at)
	return time.Unix(at, 0), err
}

// Ending returns at most so many pseudonyms of a site that end from one time to another and are not revoked, of people who have a valid
// pseudonym of another site.
func (d *DB) Ending(ctx context.Context, site string, from, to, now time.Time, most int) ([]Pseudonym, error) {
	return d.pseudonyms(ctx, `p WHERE site = $1 AND revoked = 0 AND expires BETWEEN $2 AND $3
		AND EXISTS (SELECT 1 FROM pseudonyms o WHERE o.owner = p.owner AND o.site <> p.site AND o.revoked = 0 AND o.expires > $4)
		ORDER BY expires LIMIT $5`, site, from.Unix(), to.Unix(), now.Unix(), most)
}

// Two statements, since each has an index of its own.
const (
	forgetEnded   = `DELETE FROM pseudonyms WHERE expires < $1`
	forgetRevoked = `DELETE FROM pseudonyms WHERE revoked <> 0 AND revoked <= $1`
)

// Forget deletes pseudonyms that ended before a time, and returns how many. It deletes proofs of work that ended before now.
func (d *DB) Forget(ctx context.Context, before, now time.Time) (n int64, err error) {
	if _, err := d.sql.ExecContext(ctx, `DELETE FROM spent WHERE expires < $1`, now.Unix()); err != nil {
		return 0, err
	}
	for _, statement := range []string{forgetEnded, forgetRevoked} {
		r, err := d.sql.ExecContext(ctx, statement, before.Unix())
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
