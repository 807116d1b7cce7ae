package database

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"heddle/internal/errhint"
	"heddle/internal/sqlite"
)

// SiteStats counts the pseudonyms of one site.
type SiteStats struct {
	Site    string `json:"site"`
	Valid   int    `json:"valid"`
	Ended   int    `json:"ended"`
	Revoked int    `json:"revoked"`
	People  int    `json:"people"` // who have a valid one
}

// Stats returns the counts of all sites, in alphabetical order. They name nobody.
func (d *DB) Stats(ctx context.Context, now time.Time) (all []SiteStats, err error) {
	rows, err := d.sql.QueryContext(ctx, `SELECT t.site,
		count(CASE WHEN p.revoked = 0 AND p.expires > $1 THEN 1 END),
		count(CASE WHEN p.revoked = 0 AND p.expires <= $1 THEN 1 END),
		count(CASE WHEN p.revoked <> 0 THEN 1 END),
		count(DISTINCT CASE WHEN p.revoked = 0 AND p.expires > $1 THEN p.owner END)
		FROM tenants t LEFT JOIN pseudonyms p ON p.site = t.site GROUP BY t.site ORDER BY t.site`, now.Unix())
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var s SiteStats
		if err := rows.Scan(&s.Site, &s.Valid, &s.Ended, &s.Revoked, &s.People); err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, rows.Err()
}

// ErrNoCopy says that a database has a better program for its copies.
var ErrNoCopy = errors.New("a database of PostgreSQL is not copied")

// Copy writes a copy of a SQLite database to a file that is not there, while others use the database. The copy has no [Move]. It fails with [ErrNoCopy].
func (d *DB) Copy(ctx context.Context, file string) error {
	if d.pool != nil {
		return &errhint.Error{What: "the backup", Hint: "pg_dump copies the database; keep the files of the cloud beside it", Err: ErrNoCopy}
	}
	dir, err := os.MkdirTemp(filepath.Dir(file), ".copy-") // private while it grows
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	fresh := filepath.Join(dir, "db")
	if _, err := d.sql.ExecContext(ctx, `VACUUM INTO $1`, fresh); err != nil {
		return fmt.Errorf("copy the database: %w", err)
	}
	if err := errors.Join(dropAllMoves(ctx, fresh), os.Chmod(fresh, 0o600)); err != nil {
		return err
	}
	return os.Link(fresh, file) // which replaces nothing
}

// dropAllMoves empties the table of moves in a file, which say who visits whom.
func dropAllMoves(ctx context.Context, file string) (err error) {
	d, err := sqlite.OpenShared(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	for _, statement := range []string{`DELETE FROM moves`, `VACUUM`} {
		if _, err := d.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("copy the database: %w", err)
		}
	}
	return nil
}
