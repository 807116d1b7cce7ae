package database

import (
	"context"
	"time"

	"heddle/pseudonym"
	"heddle/pseudonym/ca"
)

// Count returns how many pseudonyms one person has that are not revoked, and how many rows she fills with revoked ones.
func (d *DB) Count(ctx context.Context, o pseudonym.Owner) (own, all int, err error) {
	err = d.sql.QueryRowContext(ctx, `SELECT count(CASE WHEN revoked = 0 THEN 1 END), count(*) FROM pseudonyms WHERE owner = $1`, o[:]).Scan(&own, &all)
	return own, all, err
}

// Used reports whether a client's key has a pseudonym of somebody else than a person.
func (d *DB) Used(ctx context.Context, client ca.KeyID, o pseudonym.Owner) (yes bool, err error) {
	err = d.sql.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM pseudonyms WHERE client = $1 AND owner <> $2)`, client[:], o[:]).Scan(&yes)
	return yes, err
}

// Spend notes an identifier until a time. It fails with [ErrExists] if it is noted already, by any process.
func (d *DB) Spend(ctx context.Context, id []byte, until time.Time) error {
	r, err := d.sql.ExecContext(ctx, `INSERT INTO spent (id, expires) VALUES ($1, $2) ON CONFLICT DO NOTHING`, id, until.Unix())
	return affected(r, err, ErrExists)
}
