package control

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"heddle/internal/filelock"
)

// An open-file-description lock dies with its process, like flock(2). Unlike flock it can be queried without taking it,
// so that `heddle status` never makes a start fail.
func wholeFile(kind int16) *unix.Flock_t { return &unix.Flock_t{Type: kind, Whence: io.SeekStart} }

// hold takes the lock of an open file.
func hold(f *os.File) error {
	err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, wholeFile(unix.F_WRLCK))
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return filelock.ErrHeld
	}
	return err
}

// held reports whether another process holds it.
func held(f *os.File) bool {
	query := wholeFile(unix.F_WRLCK)
	err := unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, query)
	return err == nil && query.Type != unix.F_UNLCK
}
