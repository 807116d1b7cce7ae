// Package filelock lets processes of this machine take turns, by flock(2) or what a system has in its place.
package filelock

import (
	"errors"
	"os"
)

// ErrHeld says that another holds the lock.
var ErrHeld = errors.New("another holds the lock")

// Lock makes the file where it is absent, and waits until no other holds it. Closing it, or the end of the process, gives
// it up. Locks of one process exclude each other too.
func Lock(file string) (*os.File, error) { return open(file, false) }

// Share is Lock, but for others that share it.
func Share(file string) (*os.File, error) { return open(file, true) }

// Try takes the lock of an open file, or fails with [ErrHeld] at once.
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
