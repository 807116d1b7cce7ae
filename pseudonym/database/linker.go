package database

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"heddle/pseudonym"
	"heddle/pseudonym/ca"
)

// PutTrust replaces the sites whose links may lead to pseudonyms of a site. The site has to be there.
func (d *DB) PutTrust(ctx context.Context, site string, referrers []string) error {
	tx, err := d.sql.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, `DELETE FROM trusts WHERE site = $1`, site); err != nil {
		return err
	}
	for _, referrer := range referrers {
		if _, err := tx.ExecContext(ctx, `INSERT INTO trusts (site, referrer) VALUES ($1, $2) ON CONFLICT DO NOTHING`, site, referrer); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// Trusts reports whether links of a referrer may lead to pseudonyms of a site.
func (d *DB) Trusts(ctx context.Context, site, referrer string) (yes bool, err error) {
	err = d.sql.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM trusts WHERE site = $1 AND referrer = $2)`, site, referrer).Scan(&yes)
	return yes, err
}

// OwnerOf returns the person whose valid pseudonym of a site has this key. It fails with [pseudonym.ErrNone].
func (d *DB) OwnerOf(ctx context.Context, site string, client ca.KeyID, now time.Time) (o pseudonym.Owner, err error) {
	var owner []byte
	err = d.sql.QueryRowContext(ctx, `SELECT owner FROM pseudonyms WHERE client = $1 AND site = $2 AND expires > $3 AND revoked = 0
		ORDER BY created, label LIMIT 1`, client[:], site, now.Unix()).Scan(&owner)
	if errors.Is(err, sql.ErrNoRows) {
		err = pseudonym.ErrNone
	}
	copy(o[:], owner)
	return o, err
}

// OwnedOf returns the newest valid pseudonym that a person has of a site. It fails with [pseudonym.ErrNone].
func (d *DB) OwnedOf(ctx context.Context, o pseudonym.Owner, site string, now time.Time) (Pseudonym, error) {
	return d.scan(d.sql.QueryRowContext(ctx, `SELECT `+pseudonymColumns+` FROM pseudonyms WHERE owner = $1 AND site = $2 AND expires > $3 AND revoked = 0
		ORDER BY created DESC, label LIMIT 1`, o[:], site, now.Unix()))
}
