package status

import (
	"context"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// untilQ gives a context that ends once q is typed at the terminal in. restore makes the terminal wait for whole lines again.
func untilQ(ctx context.Context, in io.Reader) (_ context.Context, restore func()) {
	file, ok := in.(*os.File)
	if !ok {
		return ctx, func() {}
	}
	fd := int(file.Fd())
	before, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if group, groupErr := unix.IoctlGetInt(fd, unix.TIOCGPGRP); err != nil || groupErr != nil || group != unix.Getpgrp() {
		return ctx, func() {} // no terminal, or one whose keys are for another program
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
