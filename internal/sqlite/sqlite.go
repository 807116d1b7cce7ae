// Package sqlite opens SQLite databases that one process uses alone. A committed transaction is on disk, and only the owner of
// the file may read it.
package sqlite

import (
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"

	_ "modernc.org/sqlite" // the driver "sqlite"
)

// Open opens a file and locks it until the database is closed. It makes the file and its directories if they are absent.
// layout is the SQL that makes the tables; it must do nothing if they exist. version counts the changes of layout: Open
// refuses a file of a higher version.
func Open(file string, version int, layout string) (*sql.DB, error) {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE, 0o600) // SQLite gives its other files the same mode
	if err != nil {
		return nil, err
	}
	_ = f.Close()
	// A commit in the write-ahead log is one fsync with synchronous=FULL, and torn pages there are found by checksum.
	query := url.Values{"_pragma": {"busy_timeout(2000)", "locking_mode(EXCLUSIVE)", "journal_mode(WAL)", "synchronous(FULL)"}, "_txlock": {"immediate"}}
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: file}).EscapedPath()+"?"+query.Encode())
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1) // an exclusive lock is a connection's
	if err := prepare(db, version, layout); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// prepare keeps the version where SQLite keeps it for its users (PRAGMA user_version).
func prepare(db *sql.DB, version int, layout string) error {
	var found int
	if err := db.QueryRow("PRAGMA user_version").Scan(&found); err != nil {
		return err
	}
	if found > version {
		return fmt.Errorf("it is of layout %d, of a newer version of this program; this one writes %d", found, version)
	}
	// An exclusive lock is taken by the first write.
	_, err := db.Exec(fmt.Sprintf("BEGIN IMMEDIATE; %s; PRAGMA user_version = %d; COMMIT", layout, version))
	return err
}
