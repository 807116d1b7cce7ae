package netutil

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/user"
	"strconv"
	"strings"
	"syscall"

	"heddle/internal/errhint"
)

// UnixFile returns the file of an address unix:FILE.
func UnixFile(address string) (file string, ok bool) { return strings.CutPrefix(address, "unix:") }

// Network returns what [net.Dial] needs for HOST:PORT or unix:FILE.
func Network(address string) (network, at string) {
	if file, ok := UnixFile(address); ok {
		return "unix", file
	}
	return "tcp", address
}

// ListenUnix listens at a socket, which its owner and group may use. It takes the place of one that a crash left, and fails with
// [syscall.EADDRINUSE] if somebody listens there.
func ListenUnix(file string) (net.Listener, error) {
	if c, err := net.Dial("unix", file); err == nil {
		c.Close()
		return nil, fmt.Errorf("listen unix %s: %w", file, syscall.EADDRINUSE)
	}
	if info, err := os.Stat(file); err == nil && info.Mode().Type() != fs.ModeSocket {
		return nil, fmt.Errorf("listen unix %s: a file is there that is no socket", file)
	}
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	l, err := net.Listen("unix", file)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(file, 0o660); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// GiveUnix lets a group of this machine use the socket of [ListenUnix].
func GiveUnix(l net.Listener, group string) error {
	g, err := user.LookupGroup(group)
	if err == nil {
		var id int
		if id, err = strconv.Atoi(g.Gid); err == nil {
			err = os.Chown(l.Addr().String(), -1, id)
		}
	}
	if err != nil {
		return &errhint.Error{What: "the socket " + l.Addr().String(), Why: "it cannot be of the group " + group, Hint: "name a group of this machine that this program's user is in", Err: errors.Join(err, l.Close())}
	}
	return nil
}
