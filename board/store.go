package board

import (
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"heddle/board/space"
	"heddle/path"
)

// store keeps the rows of a space's state in a file of SQLite. What [store.commit] has returned from is on the disk.
type store struct{ db *sql.DB }

// openStore opens the file, makes it where it is absent, and holds it alone.
func openStore(file string) (*store, error) {
	what := "the board's file " + file
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return nil, &path.Error{What: what, Why: "its directory cannot be made", Err: err}
	}
	f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE, 0o600) // SQLite gives its other files the same mode
	if err != nil {
		return nil, &path.Error{What: what, Why: "cannot be opened", Err: err}
	}
	_ = f.Close()
	// A commit in the write-ahead log is one fsync with synchronous=FULL, and torn pages there are found by checksum.
	query := url.Values{"_pragma": {"busy_timeout(2000)", "locking_mode(EXCLUSIVE)", "journal_mode(WAL)", "synchronous(FULL)"}, "_txlock": {"immediate"}}
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: file}).EscapedPath()+"?"+query.Encode())
	if err != nil {
		return nil, &path.Error{What: what, Why: "cannot be opened", Err: err}
	}
	db.SetMaxOpenConns(1)
	s := &store{db}
	if err := s.prepare(); err != nil {
		return nil, errors.Join(&path.Error{What: what, Why: "cannot be used", Err: err,
			Hint: "another board may have it open, or it is not a board's file, or the disk is full"}, db.Close())
	}
	return s, nil
}

// schema is the version of the table's layout, which SQLite keeps for its users (PRAGMA user_version).
const schema = 1

func (s *store) prepare() error {
	var version int
	if err := s.db.QueryRow("PRAGMA user_version").Scan(&version); err != nil {
		return err
	}
	if version > schema {
		return fmt.Errorf("it is of layout %d, of a newer version of this program; this one writes %d", version, schema)
	}
	// An exclusive lock is taken by the first write.
	_, err := s.db.Exec(fmt.Sprintf("BEGIN IMMEDIATE; CREATE TABLE IF NOT EXISTS state (key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID; PRAGMA user_version = %d; COMMIT", schema))
	return err
}

// rows gives the whole state.
func (s *store) rows() (changes []space.Change, err error) {
	rows, err := s.db.Query("SELECT key, value FROM state")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var c space.Change
		if err := rows.Scan(&c.Key, &c.Value); err != nil {
			return nil, err
		}
		changes = append(changes, c)
	}
	return changes, rows.Err()
}

// commit puts the changes on the disk, all or none.
func (s *store) commit(changes []space.Change) (err error) {
	tx, err := s.db.Begin()
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, tx.Rollback())
		}
	}()
	put, err := tx.Prepare("INSERT OR REPLACE INTO state VALUES (?, ?)")
	if err != nil {
		return err
	}
	defer put.Close()
	remove, err := tx.Prepare("DELETE FROM state WHERE key = ?")
	if err != nil {
		return err
	}
	defer remove.Close()
	for _, c := range changes {
		if c.Value == nil {
			_, err = remove.Exec(c.Key)
		} else {
			_, err = put.Exec(c.Key, c.Value)
		}
		if err != nil {
			return err
		}
	}
	return tx.Commit()
}

// close writes the log back into the file.
func (s *store) close() error { return s.db.Close() }
