// Package filelock provides file locks between processes: flock(2), or LockFileEx on Windows.
package filelock

import (
	"errors"
	"os"
)

// ErrHeld means that another process or file handle holds the lock.
var ErrHeld = errors.New("another holds the lock")

// Lock opens or creates a file and waits for an exclusive lock on it, which also excludes other locks of this process. The
// lock ends when the file is closed or the process ends.
func Lock(file string) (*os.File, error) {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := lock(f, true); err != nil {
		f.Close()
		return nil, &os.PathError{Op: "flock", Path: file, Err: err}
	}
	return f, nil
}

// Try takes an exclusive lock on an open file. If it is locked, Try fails at once with [ErrHeld].
func Try(f *os.File) error { return lock(f, false) }
