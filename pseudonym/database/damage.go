package database

import (
	"context"
	"errors"

	"heddle/internal/errhint"
	"heddle/internal/sqlite"
)

// ErrDamaged says that the file of a database cannot be read any more.
var ErrDamaged = errors.New("its file is damaged")

// damage is the error for a damaged file, with what an operator can do.
func damage(why string) error {
	return &errhint.Error{What: "the database", Why: why, Hint: "put a copy of `heddle pseudonym backup` in its place, and keep the file: `sqlite3 FILE .recover` saves what is newer", Err: ErrDamaged}
}

// Check reads all of a SQLite database. It fails with [ErrDamaged]. PostgreSQL checks its own files.
func (d *DB) Check(ctx context.Context) error {
	if d.pool != nil {
		return nil
	}
	var found string
	switch err := d.sql.QueryRowContext(ctx, `PRAGMA quick_check(1)`).Scan(&found); {
	case sqlite.Damaged(err):
		return damage(err.Error())
	case err != nil:
		return err
	case found != "ok":
		return damage(found)
	}
	return nil
}
