// Package filelock lets processes of this machine take turns: by flock(2), or by LockFileEx on Windows.
package filelock

import (
	"errors"
	"os"
)

// ErrHeld means that another process or file handle holds the lock.
var ErrHeld = errors.New("another holds the lock")

// Lock opens a file, makes it if it is absent, and waits for an exclusive lock on it. Closing the file releases the lock, and
// so does the end of the process. Locks of one process exclude each other too.
func Lock(file string) (*os.File, error) { return open(file, false) }

// Share is [Lock] for a lock that others may share.
func Share(file string) (*os.File, error) { return open(file, true) }

// Try takes an exclusive lock on an open file. If another holds one, it fails with [ErrHeld] at once.
func Try(f *os.File) error { return lock(f, false, false) }

func open(file string, shared bool) (*os.File, error) {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := lock(f, shared, true); err != nil {
		f.Close()
		return nil, &os.PathError{Op: "flock", Path: file, Err: err}
	}
	return f, nil
}
