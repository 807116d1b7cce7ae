package plane

import (
	"errors"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Watch hears that something changed about this machine's devices, addresses, routes, rules or filters, so that nobody has
// to look at all of them all the time (rtnetlink(7)).
type Watch struct {
	mu sync.Mutex
	fd int
}

// watched are the groups of rtnetlink that it hears, as a mask; neighbours, which change all the time, are none of them.
const watched = unix.RTMGRP_LINK | unix.RTMGRP_TC | unix.RTMGRP_IPV4_IFADDR | unix.RTMGRP_IPV6_IFADDR |
	unix.RTMGRP_IPV4_ROUTE | unix.RTMGRP_IPV6_ROUTE | unix.RTMGRP_IPV4_RULE |
	1<<(unix.RTNLGRP_IPV6_RULE-1) | 1<<(unix.RTNLGRP_IPV4_NETCONF-1)

// NewWatch begins to listen, in the network namespace of the calling thread.
func NewWatch() (*Watch, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: watched}); err != nil {
		return nil, errors.Join(os.NewSyscallError("bind", err), unix.Close(fd))
	}
	return &Watch{fd: fd}, nil
}

// Changed reports whether something changed since it was asked last. It does not wait.
func (w *Watch) Changed() (changed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var message [64]byte // what changed does not matter, nor do messages that no room was left for
	for w.fd >= 0 {
		_, _, err := unix.Recvfrom(w.fd, message[:], 0)
		if errors.Is(err, unix.EAGAIN) {
			return changed
		}
		changed = true
		if err != nil && !errors.Is(err, unix.ENOBUFS) && !errors.Is(err, unix.EINTR) {
			return changed // and so it is at each look
		}
	}
	return true
}

// Close ends it.
func (w *Watch) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fd < 0 {
		return nil
	}
	fd := w.fd
	w.fd = -1
	return unix.Close(fd)
}
