package keeper

import (
	"encoding/binary"
	"errors"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	Quiet = 30 * time.Second // silence after which no more packets are expected; longer than a device is down that flaps
	Most  = 5 * time.Minute  // for which a socket is kept
	look  = 250 * time.Millisecond

	// After SIGTERM the machine goes down or somebody is impatient.
	quietSoon = 400 * time.Millisecond
	mostSoon  = 5 * time.Second

	// mostLingering limits the sockets that wait for silence. The oldest is closed first.
	mostLingering = 4096
)

// MaybeKeep turns this process into a keeper if [Start] started it; then it does not return. Call it first in main.
func MaybeKeep() {
	if os.Args[0] != processName {
		return
	}
	_ = unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(unsafe.StringData(processName+"\x00"))), 0, 0, 0)
	closeInherited()
	signal.Ignore(unix.SIGINT, unix.SIGHUP)
	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, unix.SIGTERM)
	p := process{held: map[ID]*socket{}, quiet: Quiet, soon: quietSoon, most: Most}
	p.run(receive(fromParent), terminated)
	os.Exit(0)
}

// fromParent is the descriptor of the socket to the other process: the first after standard error.
const fromParent = 3

// closeInherited closes what the other process itself inherited, such as the pipe of a shell that waits for its end.
func closeInherited() {
	entries, _ := os.ReadDir("/proc/self/fd")
	for _, entry := range entries {
		fd, err := strconv.Atoi(entry.Name())
		target, _ := os.Readlink("/proc/self/fd/" + entry.Name())
		if err == nil && fd > fromParent && !strings.HasPrefix(target, "anon_inode:") { // the Go runtime's own
			unix.Close(fd)
		}
	}
}

// process is the keeper itself.
type process struct {
	held        map[ID]*socket
	lingering   []*socket // oldest first
	quiet, most time.Duration
	soon        time.Duration // replaces quiet after SIGTERM
}

// socket is a duplicate of a socket of the other process.
type socket struct {
	fd          int
	stream      bool
	heard       func() (more, over bool)
	began, last time.Time
}

// message is one from the other process.
type message struct {
	what order
	id   ID
	fd   int // -1 without one
}

// receive reads messages until the other process ends.
func receive(from int) <-chan message {
	messages := make(chan message)
	go func() {
		defer close(messages)
		b, rights := make([]byte, messageBytes), make([]byte, unix.CmsgSpace(4))
		for {
			n, got, _, _, err := unix.Recvmsg(from, b, rights, unix.MSG_CMSG_CLOEXEC)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if err != nil || n < messageBytes {
				return
			}
			messages <- message{order(b[0]), ID(binary.BigEndian.Uint64(b[1:])), descriptor(rights[:got])}
		}
	}()
	return messages
}

func descriptor(rights []byte) int {
	all, err := unix.ParseSocketControlMessage(rights)
	if err != nil || len(all) != 1 {
		return -1
	}
	fds, err := unix.ParseUnixRights(&all[0])
	if err != nil || len(fds) != 1 {
		return -1
	}
	return fds[0]
}

// run ends when the other process has ended and no socket is left.
func (p *process) run(messages <-chan message, terminated <-chan os.Signal) {
	ticks := time.NewTicker(look)
	defer ticks.Stop()
	for messages != nil || len(p.lingering) > 0 {
		tick := ticks.C
		if len(p.lingering) == 0 {
			tick = nil // and the ticker wakes nobody
		}
		select {
		case m, alive := <-messages:
			if alive {
				p.obey(m)
				continue
			}
			messages = nil
			for _, id := range slices.Sorted(maps.Keys(p.held)) {
				p.linger(p.held[id])
			}
		case <-tick:
			p.lingering = slices.DeleteFunc(p.lingering, p.look)
		case <-terminated:
			p.quiet, p.most = p.soon, mostSoon
		}
	}
}

func (p *process) obey(m message) {
	s := p.held[m.id]
	switch m.what {
	case holdDatagrams, holdStream:
		if m.fd >= 0 {
			p.held[m.id] = &socket{fd: m.fd, stream: m.what == holdStream}
		}
		return
	}
	delete(p.held, m.id)
	switch {
	case s == nil: // it came without a descriptor: too many are open
	case m.what == closeNow:
		unix.Close(s.fd)
	default:
		p.linger(s)
	}
}

func (p *process) linger(s *socket) {
	s.heard = Heard(s.fd, s.stream)
	s.began = time.Now()
	s.last = s.began
	s.heard()
	p.lingering = append(p.lingering, s)
	for len(p.lingering) > mostLingering {
		unix.Close(p.lingering[0].fd)
		p.lingering = p.lingering[1:]
	}
}

// look closes the socket if nothing more is expected, and reports whether it did.
func (p *process) look(s *socket) bool {
	more, over := s.heard()
	now := time.Now()
	if more {
		s.last = now
	}
	if !over && now.Sub(s.last) < p.quiet && now.Sub(s.began) < p.most {
		return false
	}
	unix.Close(s.fd)
	return true
}
