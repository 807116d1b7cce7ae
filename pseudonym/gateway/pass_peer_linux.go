package gateway

import (
	"errors"
	"net"
	"os"
	"slices"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// groupOf returns the group of a socket's file, or -1.
func groupOf(file string) int {
	info, err := os.Lstat(file)
	if err != nil {
		return -1
	}
	return int(info.Sys().(*syscall.Stat_t).Gid)
}

// mayPass reports whether the process that connected is one of root, of this program's own user, or of a group. The kernel noted that when it
// connected (unix(7), SO_PEERCRED).
func mayPass(way net.Conn, group int) bool {
	c, ok := way.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	may := false
	err = raw.Control(func(fd uintptr) {
		peer, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		if err != nil {
			return
		}
		may = peer.Uid == 0 || int(peer.Uid) == os.Geteuid() || group >= 0 && (int(peer.Gid) == group || slices.Contains(peerGroups(int(fd)), uint32(group)))
	})
	return err == nil && may
}

// peerGroups returns the further groups of the process that connected.
func peerGroups(fd int) []uint32 {
	for size := uint32(64); ; {
		groups := make([]uint32, size)
		bytes := size * 4
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_PEERGROUPS, uintptr(unsafe.Pointer(&groups[0])), uintptr(unsafe.Pointer(&bytes)), 0)
		switch {
		case errno == 0:
			return groups[:bytes/4]
		case errno != unix.ERANGE || bytes/4 <= size:
			return nil
		}
		size = bytes / 4 // as many as there are
	}
}

// inNetworkOf reports whether a socket belongs to the same network namespace as another one. The caller needs CAP_NET_ADMIN.
func inNetworkOf(c, other net.Conn) bool {
	a, err := networkOf(c)
	b, failed := networkOf(other)
	return err == nil && failed == nil && a == b
}

// networkOf returns the device and the number of the file of a socket's network namespace.
func networkOf(c net.Conn) (id [2]uint64, err error) {
	raw, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		return id, err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		network, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, unix.SIOCGSKNS, 0)
		if errno != 0 {
			failed = errno
			return
		}
		defer unix.Close(int(network))
		var of unix.Stat_t
		failed = unix.Fstat(int(network), &of)
		id = [2]uint64{uint64(of.Dev), of.Ino}
	})
	return id, errors.Join(err, failed)
}
