// Package filelock lets processes of this machine take turns by flock(2).
package filelock

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Lock makes the file where it is absent, and waits until no other holds it. Closing it, or the end of the process, gives
// it up. Locks of one process exclude each other too.
func Lock(file string) (*os.File, error) { return lock(file, unix.LOCK_EX) }

// Share is Lock, but for others that share it.
func Share(file string) (*os.File, error) { return lock(file, unix.LOCK_SH) }

func lock(file string, how int) (*os.File, error) {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for err = unix.EINTR; errors.Is(err, unix.EINTR); {
		err = unix.Flock(int(f.Fd()), how)
	}
	if err != nil {
		f.Close()
		return nil, &os.PathError{Op: "flock", Path: file, Err: err}
	}
	return f, nil
}
