//go:build linux || darwin || freebsd

package transfer

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// plainFile refuses links and does not block on FIFOs.
const plainFile = unix.O_NOFOLLOW | unix.O_NONBLOCK

func roomOf(dir *os.File) (int64, error) {
	var stat unix.Statfs_t
	if err := unix.Fstatfs(int(dir.Fd()), &stat); err != nil {
		return 0, fmt.Errorf("fstatfs: %w", err)
	}
	size := int64(stat.Bsize)
	return int64(min(uint64(max(stat.Bavail, 0)), 1<<62/uint64(size))) * size, nil
}
