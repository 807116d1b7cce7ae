package status

import (
	"context"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// untilQ returns a context that ends when q is typed at the terminal. restore restores the terminal's line mode.
func untilQ(ctx context.Context, in io.Reader) (_ context.Context, restore func()) {
	file, ok := in.(*os.File)
	if !ok {
		return ctx, func() {}
	}
	fd := int(file.Fd())
	before, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if group, groupErr := unix.IoctlGetInt(fd, unix.TIOCGPGRP); err != nil || groupErr != nil || group != unix.Getpgrp() {
		return ctx, func() {} // no terminal, or this process is in the background
	}
	keys := *before
	keys.Lflag &^= unix.ICANON | unix.ECHO
	if err := unix.IoctlSetTermios(fd, unix.TCSETS, &keys); err != nil {
		return ctx, func() {}
	}
	ctx, quit := context.WithCancel(ctx)
	go func() {
		key := []byte{0}
		for key[0] != 'q' {
			if n, err := file.Read(key); n == 0 || err != nil {
				return
			}
		}
		quit()
	}()
	return ctx, func() {
		quit()
		_ = unix.IoctlSetTermios(fd, unix.TCSETS, before)
	}
}
