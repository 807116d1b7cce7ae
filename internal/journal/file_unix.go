//go:build unix

package journal

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// readOwn reads a file that only this user may own: a journal contains commands that run with this user's rights.
func readOwn(file string) ([]byte, error) {
	f, err := os.OpenFile(file, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	owner := info.Sys().(*syscall.Stat_t).Uid
	switch {
	case !info.Mode().IsRegular():
		return nil, errors.New("it is no regular file")
	case int(owner) != os.Geteuid():
		return nil, fmt.Errorf("user %d owns it", owner)
	case info.Mode().Perm()&0o077 != 0:
		return nil, fmt.Errorf("others have rights on it (mode %04o)", info.Mode().Perm())
	case info.Size() > 1<<20:
		return nil, errors.New("it is too large")
	}
	data := make([]byte, info.Size())
	_, err = f.ReadAt(data, 0)
	return data, err
}
