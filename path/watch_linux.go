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

// Watch hears that something changed about this machine's devices, addresses, routes, rules or filters (rtnetlink(7)).
// While one is open, paths in its network namespace remember what the kernel told them until something changes, so that
// they do not ask again and again. All watches of a namespace share one socket.
type Watch struct {
	machine *machine
	seen    uint64 // changes that Changed has reported
	closed  bool
}

// machine is what is remembered of one network namespace.
type machine struct {
	id    namespace
	users int // guarded by machines

	mu      sync.Mutex
	fd      int
	changes uint64
	answers map[any]any // answer, by question
}

type answer[T any] struct {
	value T
	err   error
	at    time.Time
}

// namespace names a network namespace by the file that stands for it.
type namespace struct{ device, inode uint64 }

var machines = struct {
	sync.Mutex
	all map[namespace]*machine
	n   atomic.Int32 // of all
}{all: map[namespace]*machine{}}

// watched are the groups of rtnetlink that a watch hears, as a mask; neighbours, which change all the time, are none of them.
const watched = unix.RTMGRP_LINK | unix.RTMGRP_TC | unix.RTMGRP_IPV4_IFADDR | unix.RTMGRP_IPV6_IFADDR |
	unix.RTMGRP_IPV4_ROUTE | unix.RTMGRP_IPV6_ROUTE | unix.RTMGRP_IPV4_RULE |
	1<<(unix.RTNLGRP_IPV6_RULE-1) | 1<<(unix.RTNLGRP_IPV4_NETCONF-1) | 1<<(unix.RTNLGRP_NEXTHOP-1)

const (
	// rememberFor bounds how long an answer is remembered, as a few settings change without a message.
	rememberFor = 30 * time.Second
	// maxAnswers bounds what is remembered.
	maxAnswers = 1024
)

// NewWatch begins to listen, in the network namespace of the calling thread.
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

// here is the network namespace of the calling thread: tests have several.
func here() (namespace, error) {
	var s unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &s); err != nil {
		return namespace{}, &os.PathError{Op: "stat", Path: "/proc/thread-self/ns/net", Err: err}
	}
	return namespace{uint64(s.Dev), s.Ino}, nil
}

// Changed reports whether something changed since it was asked last. It does not wait. It is for one goroutine. On a nil
// watch it always reports true.
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

// Close ends it. A nil watch can be closed too.
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

// hear reads what waits on the socket, and forgets the answers if there was anything. What changed does not matter, nor do
// messages that no room was left for. It reports whether the socket failed, so that nothing is known. m.mu is held.
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

// questions counts what the kernel was asked.
var questions atomic.Uint64

// Questions is how often the kernel was asked about devices, addresses and routes; each question takes a socket.
func Questions() uint64 { return questions.Load() }

// Ask gives the kernel's answer to a question about devices, addresses or routes: the one that is remembered, if a [Watch]
// is open in this thread's namespace and nothing changed since, or that of ask. The question must be comparable, and of a
// type of its own.
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
		return value, err // it may be of before the change
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

// lasting reports whether an error tells how the machine is, and not only that the question could not be asked.
func lasting(err error) bool {
	_, absent := errors.AsType[netlink.LinkNotFoundError](err)
	return absent || errors.Is(err, unix.ENETUNREACH) || errors.Is(err, unix.EHOSTUNREACH) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EINVAL)
}
