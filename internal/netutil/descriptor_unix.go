//go:build unix && !linux

package netutil

import (
	"net"

	"golang.org/x/sys/unix"
)

// SendDescriptor sends a message with a descriptor by a unix socket. It returns how much of the message was sent.
func SendDescriptor(way *net.UnixConn, fd int, message []byte) (sent int, err error) {
	sent, _, err = way.WriteMsgUnix(message, unix.UnixRights(fd), nil)
	return sent, err
}
