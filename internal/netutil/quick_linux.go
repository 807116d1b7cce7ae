package netutil

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Quick returns a connection of the kernel for short messages, which one goroutine at a time reads and one writes. Its socket never waits, so Go's scheduler is not
// told of its calls. The scheduler would have its monitor thread look after each, and wake that for the first one after the process had nothing to do, as between
// two messages. A thread that wakes costs more than the message.
func Quick(c net.Conn) net.Conn {
	of, ok := c.(syscall.Conn)
	if !ok {
		return c
	}
	raw, err := of.SyscallConn()
	if err != nil {
		return c
	}
	q := &quick{Conn: c, raw: raw}
	q.in.try = func(fd uintptr) bool { return q.in.call(unix.SYS_READ, fd) }
	q.out.try = func(fd uintptr) bool { return q.out.call(unix.SYS_WRITE, fd) }
	return q
}

type quick struct {
	net.Conn
	raw     syscall.RawConn
	in, out quickCall
}

// quickCall is one read or write.
type quickCall struct {
	try   func(fd uintptr) bool
	bytes []byte
	n     int
	errno unix.Errno
}

// call reports false if the socket has nothing, or no room.
func (t *quickCall) call(number, fd uintptr) bool {
	for {
		n, _, errno := unix.RawSyscall(number, fd, uintptr(unsafe.Pointer(unsafe.SliceData(t.bytes))), uintptr(len(t.bytes)))
		if errno == unix.EINTR {
			continue
		}
		t.n, t.errno = int(n), errno
		return errno != unix.EAGAIN
	}
}

// do calls the kernel once, when the socket is ready.
func (t *quickCall) do(when func(func(fd uintptr) bool) error, name string, b []byte) (int, error) {
	t.bytes = b
	err := when(t.try)
	t.bytes = nil
	switch {
	case err != nil:
		return 0, err
	case t.errno != 0:
		return 0, &net.OpError{Op: name, Err: os.NewSyscallError(name, t.errno)}
	}
	return t.n, nil
}

func (q *quick) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	n, err := q.in.do(q.raw.Read, "read", b)
	if n == 0 && err == nil {
		err = io.EOF
	}
	return n, err
}

func (q *quick) Write(b []byte) (written int, err error) {
	for written < len(b) {
		n, err := q.out.do(q.raw.Write, "write", b[written:])
		if err != nil {
			return written, err
		}
		written += n
	}
	return written, nil
}

// SetLinger is for [Reset].
func (q *quick) SetLinger(seconds int) error {
	if tcp, ok := q.Conn.(interface{ SetLinger(int) error }); ok {
		return tcp.SetLinger(seconds)
	}
	return nil
}

// NetConn returns the connection of the kernel.
func (q *quick) NetConn() net.Conn { return q.Conn }

// SendDescriptor sends a message with a descriptor by a unix socket as [Quick] does. It returns how much of the message was sent.
func SendDescriptor(way *net.UnixConn, fd int, message []byte) (sent int, err error) {
	if len(message) == 0 {
		return 0, errors.New("a descriptor goes with a byte at least")
	}
	raw, err := way.SyscallConn()
	if err != nil {
		return 0, err
	}
	rights := unix.UnixRights(fd)
	part := unix.Iovec{Base: &message[0]}
	part.SetLen(len(message))
	of := unix.Msghdr{Iov: &part, Control: &rights[0]}
	of.SetIovlen(1)
	of.SetControllen(len(rights))
	var errno unix.Errno
	err = raw.Write(func(to uintptr) bool {
		for {
			n, _, failed := unix.RawSyscall(unix.SYS_SENDMSG, to, uintptr(unsafe.Pointer(&of)), unix.MSG_NOSIGNAL)
			if failed == unix.EINTR {
				continue
			}
			sent, errno = int(n), failed
			return errno != unix.EAGAIN
		}
	})
	if err == nil && errno != 0 {
		sent, err = 0, &net.OpError{Op: "sendmsg", Err: os.NewSyscallError("sendmsg", errno)}
	}
	return sent, err
}
