package tcprepair

import (
	"bytes"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// None of these calls ever waits, so Go's scheduler is not told of them. It would have its monitor thread look after each, and wake that if the process was idle.

func set(fd, option, value int) error { return setAt(fd, unix.IPPROTO_TCP, option, value) }

func get(fd, option int) (int, error) { return getAt(fd, unix.IPPROTO_TCP, option) }

func setAt(fd, level, option, value int) error {
	v := int32(value)
	return setBytes(fd, level, option, unsafe.Pointer(&v), unsafe.Sizeof(v))
}

func getAt(fd, level, option int) (int, error) {
	var v int32
	_, err := getBytes(fd, level, option, unsafe.Pointer(&v), unsafe.Sizeof(v))
	return int(v), err
}

func setBytes(fd, level, option int, value unsafe.Pointer, size uintptr) error {
	_, _, errno := unix.RawSyscall6(unix.SYS_SETSOCKOPT, uintptr(fd), uintptr(level), uintptr(option), uintptr(value), size, 0)
	return failed(errno)
}

// getBytes returns the size of the answer.
func getBytes(fd, level, option int, value unsafe.Pointer, room uintptr) (uint32, error) {
	size := uint32(room)
	_, _, errno := unix.RawSyscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), uintptr(option), uintptr(value), uintptr(unsafe.Pointer(&size)), 0)
	return size, failed(errno)
}

func getString(fd, level, option int) (string, error) {
	var b [nameBytes]byte
	n, err := getBytes(fd, level, option, unsafe.Pointer(&b), unsafe.Sizeof(b))
	name, _, _ := bytes.Cut(b[:n], []byte{0})
	return string(name), err
}

func setString(fd, level, option int, value string) error {
	return setBytes(fd, level, option, unsafe.Pointer(unsafe.StringData(value)), uintptr(len(value)))
}

// queued asks for the size of a queue.
func queued(fd int, of uint) (int, error) {
	var n int32
	_, _, errno := unix.RawSyscall(unix.SYS_IOCTL, uintptr(fd), uintptr(of), uintptr(unsafe.Pointer(&n)))
	return int(n), failed(errno)
}

// closeAt closes a descriptor of a socket that another one keeps open, or that is in repair.
func closeAt(fd int) error {
	_, _, errno := unix.RawSyscall(unix.SYS_CLOSE, uintptr(fd), 0, 0)
	return failed(errno)
}

// write writes all at once, or fails.
func write(fd int, b []byte) error {
	for len(b) > 0 {
		n, _, errno := unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
		switch errno {
		case unix.EINTR:
		case 0:
			b = b[n:]
		default:
			return errno
		}
	}
	return nil
}

// bind and connect of a socket in repair send nothing, and answer at once.

func bind(fd int, to netip.AddrPort) error { return callWith(unix.SYS_BIND, fd, to) }

func connect(fd int, to netip.AddrPort) error { return callWith(unix.SYS_CONNECT, fd, to) }

func callWith(call uintptr, fd int, a netip.AddrPort) error {
	var of unix.RawSockaddrInet6 // the larger one
	at, size := unsafe.Pointer(&of), unsafe.Sizeof(of)
	port := [2]byte{byte(a.Port() >> 8), byte(a.Port())}
	if a.Addr().Is4() {
		*(*unix.RawSockaddrInet4)(at) = unix.RawSockaddrInet4{Family: unix.AF_INET, Port: *(*uint16)(unsafe.Pointer(&port)), Addr: a.Addr().As4()}
		size = unix.SizeofSockaddrInet4
	} else {
		of = unix.RawSockaddrInet6{Family: unix.AF_INET6, Port: *(*uint16)(unsafe.Pointer(&port)), Addr: a.Addr().As16()}
	}
	_, _, errno := unix.RawSyscall(call, uintptr(fd), uintptr(at), size)
	return failed(errno)
}

func failed(errno unix.Errno) error {
	if errno == 0 {
		return nil
	}
	return errno
}
