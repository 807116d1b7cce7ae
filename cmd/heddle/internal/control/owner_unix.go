//go:build unix

package control

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// NoFollow makes [os.OpenFile] refuse symbolic links.
const NoFollow = syscall.O_NOFOLLOW

func checkOwner(info fs.FileInfo) error {
	if info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("others can write to it (mode %#o)", info.Mode().Perm())
	}
	owner := info.Sys().(*syscall.Stat_t).Uid
	if euid := os.Geteuid(); int(owner) != euid && euid != 0 {
		return fmt.Errorf("user %d owns it, not user %d", owner, euid)
	}
	return nil
}
