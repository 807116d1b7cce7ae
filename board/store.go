package board

import (
	"database/sql"
	"errors"

	"heddle/board/space"
	"heddle/internal/sqlite"
	"heddle/path"
)

// store keeps the rows of a space's state in an SQLite file. A commit is on the disk when it returns.
type store struct{ db *sql.DB }

// openStore opens or creates the file and locks it.
func openStore(file string) (*store, error) {
	db, err := sqlite.Open(file, schema, "CREATE TABLE IF NOT EXISTS state (key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID")
	if err != nil {
		return nil, &path.Error{What: "the board's file " + file, Why: "cannot be used", Err: err,
			Hint: "another board may have it open, or it is not a board's file, or the disk is full"}
	}
	return &store{db}, nil
}

// schema is the version of the table's layout.
const schema = 1

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

// commit writes the changes to the disk atomically.
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

// close checkpoints the write-ahead log into the file.
func (s *store) close() error { return s.db.Close() }
