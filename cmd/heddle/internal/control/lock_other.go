//go:build !linux

package control

import (
	"errors"
	"os"

	"heddle/internal/filelock"
)

// hold takes the lock of an open file.
func hold(f *os.File) error { return filelock.Try(f) }

// held reports whether another process holds it. It takes the lock briefly, during which a start fails.
func held(f *os.File) bool { return errors.Is(filelock.Try(f), filelock.ErrHeld) }
