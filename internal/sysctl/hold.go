package sysctl

import (
	"context"
	"errors"
	"os"
	"time"

	"heddle/internal/filelock"
)

// ErrHeld means that another process, or another goroutine, holds a setting.
var ErrHeld = errors.New("another process holds it")

// holdPatience bounds the wait for others, each of which needs a few milliseconds, or a second on a busy machine.
const holdPatience = 10 * time.Second

// Hold makes all others who call it for this setting wait until release, also those with another run directory. It locks the
// kernel's own file, of which each network namespace has one. Anybody who may read the file can lock it for ever, so Hold
// waits for a limited time and then fails with [ErrHeld].
func Hold(ctx context.Context, file string) (release func(), err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	end := time.Now().Add(holdPatience)
	for wait := time.Millisecond; ; wait = min(2*wait, 20*time.Millisecond) {
		switch err := filelock.Try(f); {
		case err == nil:
			return func() { f.Close() }, nil
		case !errors.Is(err, filelock.ErrHeld):
			f.Close()
			return nil, err
		case time.Now().After(end) || ctx.Err() != nil:
			f.Close()
			return nil, ErrHeld
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}
