// Package sqlite opens durable SQLite databases, readable by their owner only.
package sqlite

import (
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"

	"modernc.org/sqlite" // registers the driver "sqlite"
	lib "modernc.org/sqlite/lib"
)

// Damaged reports whether an error says that a file is no database, or that parts of it are damaged.
func Damaged(err error) bool {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return false
	}
	primary := e.Code() & 0xff // the rest says more, such as which part
	return primary == lib.SQLITE_CORRUPT || primary == lib.SQLITE_NOTADB
}

// Open opens or creates a file, and locks it until the database is closed. layout is the SQL that creates the tables; it
// must do nothing if they exist. version counts the changes of layout: Open refuses a file of a higher version.
func Open(file string, version int, layout string) (*sql.DB, error) {
	db, err := open(file, "EXCLUSIVE")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1) // an exclusive lock belongs to one connection
	if err := prepare(db, version, layout); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// OpenShared opens or creates a file that several processes of this machine may have open. The caller makes the tables.
func OpenShared(file string) (*sql.DB, error) { return open(file, "NORMAL") }

func open(file, locking string) (*sql.DB, error) {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE, 0o600) // SQLite gives its other files the same mode
	if err != nil {
		return nil, err
	}
	_ = f.Close()
	// With synchronous=FULL, a commit to the write-ahead log is one fsync, and checksums detect its torn pages.
	query := url.Values{"_pragma": {"busy_timeout(2000)", "foreign_keys(1)", "locking_mode(" + locking + ")", "journal_mode(WAL)", "synchronous(FULL)"}, "_txlock": {"immediate"}}
	return sql.Open("sqlite", "file:"+(&url.URL{Path: file}).EscapedPath()+"?"+query.Encode())
}

// prepare stores the version in PRAGMA user_version, which SQLite reserves for applications.
func prepare(db *sql.DB, version int, layout string) error {
	var found int
	if err := db.QueryRow("PRAGMA user_version").Scan(&found); err != nil {
		return err
	}
	if found > version {
		return fmt.Errorf("it is of layout %d, of a newer version of this program; this one writes %d", found, version)
	}
	// The first write takes the exclusive lock.
	_, err := db.Exec(fmt.Sprintf("BEGIN IMMEDIATE; %s; PRAGMA user_version = %d; COMMIT", layout, version))
	return err
}
