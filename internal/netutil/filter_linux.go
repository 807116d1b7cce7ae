package netutil

import (
	"os"

	"golang.org/x/sys/unix"
)

// RefuseAll gives a socket a filter that keeps no byte of a packet. What was received before stays.
func RefuseAll(fd int) error {
	none := &unix.SockFprog{Len: 1, Filter: &unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K}}
	return os.NewSyscallError("SO_ATTACH_FILTER", unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, none))
}
