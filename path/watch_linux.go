package path

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Watch reports changes of this machine's devices, addresses, routes, rules and traffic control filters (rtnetlink(7)).
// While it is open, paths in its network namespace cache the kernel's answers until a change. All watches of a namespace
// share a socket.
type Watch struct {
	machine *machine
	seen    uint64 // changes that Changed has reported
	closed  bool
}

// machine holds the cached answers of one network namespace.
type machine struct {
	id    namespace
	users int // guarded by machines

	mu      sync.Mutex
	fd      int
	changes uint64
	answers map[any]any // by question
}

type answer[T any] struct {
	value T
	err   error
	at    time.Time
}

// namespace identifies a network namespace by device and inode, which the kernel cannot reuse while a watch keeps it open.
type namespace struct{ device, inode uint64 }

var machines = struct {
	sync.Mutex
	all map[namespace]*machine
	n   atomic.Int32 // of all
}{all: map[namespace]*machine{}}

// watched is the mask of a watch's rtnetlink groups. It excludes neighbours, which change all the time.
const watched = unix.RTMGRP_LINK | unix.RTMGRP_TC | unix.RTMGRP_IPV4_IFADDR | unix.RTMGRP_IPV6_IFADDR |
	unix.RTMGRP_IPV4_ROUTE | unix.RTMGRP_IPV6_ROUTE | unix.RTMGRP_IPV4_RULE |
	1<<(unix.RTNLGRP_IPV6_RULE-1) | 1<<(unix.RTNLGRP_IPV4_NETCONF-1) | 1<<(unix.RTNLGRP_IPV6_NETCONF-1) |
	1<<(unix.RTNLGRP_NEXTHOP-1)

const (
	rememberFor = 30 * time.Second // maximum age of a cached answer, as a few settings change without a message
	maxAnswers  = 1024             // cached answers per namespace
)

// NewWatch opens a watch in the network namespace of the calling thread.
func NewWatch() (*Watch, error) {
	id, err := here()
	if err != nil {
		return nil, err
	}
	machines.Lock()
	defer machines.Unlock()
	m := machines.all[id]
	if m == nil {
		if m, err = follow(id); err != nil {
			return nil, err
		}
		machines.all[id] = m
		machines.n.Add(1)
	}
	m.users++
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hear()
	return &Watch{machine: m, seen: m.changes}, nil
}

func follow(id namespace) (*machine, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: watched}); err != nil {
		return nil, errors.Join(os.NewSyscallError("bind", err), unix.Close(fd))
	}
	return &machine{id: id, fd: fd, answers: map[any]any{}}, nil
}

// here returns the network namespace of the calling thread. Tests use several.
func here() (namespace, error) {
	var s unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &s); err != nil {
		return namespace{}, &os.PathError{Op: "stat", Path: "/proc/thread-self/ns/net", Err: err}
	}
	return namespace{uint64(s.Dev), s.Ino}, nil
}

// Changed reports, without blocking, whether something changed since the last call. Only one goroutine may call it. A nil
// watch always returns true.
func (w *Watch) Changed() bool {
	if w == nil || w.closed {
		return true
	}
	w.machine.mu.Lock()
	defer w.machine.mu.Unlock()
	failed := w.machine.hear()
	changed := failed || w.machine.changes != w.seen
	w.seen = w.machine.changes
	return changed
}

// Close closes the watch. It does nothing on a nil watch.
func (w *Watch) Close() error {
	if w == nil || w.closed {
		return nil
	}
	w.closed = true
	machines.Lock()
	defer machines.Unlock()
	if w.machine.users--; w.machine.users > 0 {
		return nil
	}
	delete(machines.all, w.machine.id)
	machines.n.Add(-1)
	w.machine.mu.Lock()
	defer w.machine.mu.Unlock()
	fd := w.machine.fd
	w.machine.fd = -1
	return unix.Close(fd)
}

// hear reads the waiting messages, and drops the cached answers if there were any. It ignores their content, so that
// messages lost for lack of buffer space (ENOBUFS) do no harm. It reports whether the socket failed, after which changes go
// unnoticed. m.mu is held.
func (m *machine) hear() (failed bool) {
	var message [64]byte
	for m.fd >= 0 {
		_, _, err := unix.Recvfrom(m.fd, message[:], 0)
		if errors.Is(err, unix.EAGAIN) {
			return false
		}
		m.changes++
		clear(m.answers)
		if err != nil && !errors.Is(err, unix.ENOBUFS) && !errors.Is(err, unix.EINTR) {
			return true
		}
	}
	clear(m.answers)
	return true
}

var questions atomic.Uint64

// Questions returns how many questions about devices, addresses and routes went to the kernel. Each opens a socket.
func Questions() uint64 { return questions.Load() }

// Ask returns the kernel's answer to a question about devices, addresses or routes. With an open [Watch] in this thread's
// namespace, it caches answers until a change. The question must be comparable, of a separate type per kind of question.
// Callers share the answer and must not modify it.
func Ask[T any](question any, ask func() (T, error)) (T, error) {
	m := watchedHere()
	if m == nil {
		questions.Add(1)
		return ask()
	}
	m.mu.Lock()
	m.hear()
	changes := m.changes
	known, ok := m.answers[question].(answer[T])
	m.mu.Unlock()
	if ok && time.Since(known.at) < rememberFor {
		return known.value, known.err
	}
	questions.Add(1)
	value, err := ask()
	if err != nil && !lasting(err) {
		return value, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if failed := m.hear(); failed || m.changes != changes {
		return value, err // it may predate the change
	}
	if len(m.answers) >= maxAnswers {
		clear(m.answers)
	}
	m.answers[question] = answer[T]{value, err, time.Now()}
	return value, err
}

func watchedHere() *machine {
	if machines.n.Load() == 0 {
		return nil
	}
	id, err := here()
	if err != nil {
		return nil
	}
	machines.Lock()
	defer machines.Unlock()
	return machines.all[id]
}

// lasting reports whether an error describes the machine's state, such as a missing device, and so may be cached. Other
// errors mean that the question could not be asked.
func lasting(err error) bool {
	_, absent := errors.AsType[netlink.LinkNotFoundError](err)
	return absent || errors.Is(err, unix.ENETUNREACH) || errors.Is(err, unix.EHOSTUNREACH) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EINVAL)
}
