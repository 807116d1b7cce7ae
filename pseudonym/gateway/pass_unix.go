//go:build unix

package gateway

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// socketPair returns both ends of a pipe within this machine.
func socketPair() (near, far net.Conn, err error) {
	syscall.ForkLock.RLock() // no program that starts meanwhile gets them
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err == nil {
		unix.CloseOnExec(fds[0])
		unix.CloseOnExec(fds[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, nil, err
	}
	near, err = connOf(fds[0])
	far, other := connOf(fds[1])
	if err = errors.Join(err, other); err != nil {
		for _, c := range []net.Conn{near, far} {
			if c != nil {
				c.Close()
			}
		}
		return nil, nil, err
	}
	return near, far, nil
}

// connOf returns the connection of a descriptor, which it takes over.
func connOf(fd int) (net.Conn, error) {
	f := os.NewFile(uintptr(fd), "passed")
	defer f.Close()
	return net.FileConn(f)
}

// giveDescriptor sends a message with the descriptor of a connection.
func giveDescriptor(way *net.UnixConn, fd int, message []byte) error {
	sent, _, err := way.WriteMsgUnix(message, unix.UnixRights(fd), nil)
	if err != nil || sent == len(message) {
		return err // the other end may be closed already once it has all
	}
	_, err = way.Write(message[sent:])
	return err
}

// takeDescriptor reads the connection that came with a message, and returns it with a reader of the message.
func takeDescriptor(way net.Conn) (net.Conn, io.Reader, error) {
	from, ok := way.(*net.UnixConn)
	if !ok {
		return nil, nil, errPass
	}
	first, rights := make([]byte, 4096), make([]byte, unix.CmsgSpace(4))
	n, got, flags, _, err := from.ReadMsgUnix(first, rights)
	if err != nil {
		return nil, nil, err
	}
	fds := descriptors(rights[:got])
	if len(fds) != 1 || flags&unix.MSG_CTRUNC != 0 {
		for _, fd := range fds {
			unix.Close(fd)
		}
		return nil, nil, errPass
	}
	c, err := connOf(fds[0])
	if err != nil {
		return nil, nil, err
	}
	switch c.(type) {
	case *net.TCPConn, *net.UnixConn:
		return c, io.MultiReader(bytes.NewReader(first[:n]), from), nil
	}
	c.Close()
	return nil, nil, errPass
}

func descriptors(rights []byte) (all []int) {
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil {
		return nil
	}
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err == nil {
			all = append(all, fds...)
		}
	}
	return all
}

// hasEnded reports whether the other end of a way that waits has ended, or says what nobody asked for.
func hasEnded(way *net.UnixConn) bool {
	raw, err := way.SyscallConn()
	if err != nil {
		return true
	}
	ended := true
	err = raw.Control(func(fd uintptr) {
		_, _, err := unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
		ended = !errors.Is(err, unix.EAGAIN)
	})
	return err != nil || ended
}
