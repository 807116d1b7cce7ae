package transfer

import (
	"os"

	"golang.org/x/sys/windows"
)

// plainFile is 0: files that [os.Root] opens are inside the directory, link or not.
const plainFile = 0

func roomOf(dir *os.File) (int64, error) {
	name, err := windows.UTF16PtrFromString(dir.Name())
	if err != nil {
		return 0, err
	}
	var room uint64
	err = windows.GetDiskFreeSpaceEx(name, &room, nil, nil)
	return int64(min(room, 1<<62)), err
}
