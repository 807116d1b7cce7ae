// Package unsent bounds how much of what a program wrote to TCP waits in the kernel before it is sent for the first time. What is sent and not
// yet acknowledged does not count, so a connection stays as fast as it is, and what is written later is newer.
package unsent

import (
	"errors"
	"net"
	"syscall"
)

// mostWrapped bounds how many connections are around a socket.
const mostWrapped = 8

// Socket returns the TCP socket under a connection, or nil if there is none.
func Socket(c net.Conn) syscall.RawConn {
	for range mostWrapped {
		switch at := c.(type) {
		case *net.TCPConn:
			raw, err := at.SyscallConn()
			if err != nil {
				return nil
			}
			return raw
		case interface{ NetConn() net.Conn }:
			c = at.NetConn()
		default:
			return nil
		}
	}
	return nil
}

// Limit bounds a connection's unsent bytes. It fails with [errors.ErrUnsupported] if the connection is no socket, or the system has no such
// limit: a write then only returns earlier.
func Limit(c net.Conn, bytes int) error {
	raw := Socket(c)
	if raw == nil {
		return errors.ErrUnsupported
	}
	var failed error
	err := raw.Control(func(fd uintptr) { failed = Set(fd, bytes) })
	return errors.Join(err, failed)
}
