package path

import (
	"io"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"heddle/internal/keeper"
)

// The kernel answers packets for a closed socket with an ICMP error or a TCP reset. Such an answer is not bound to the
// device: by the main route, another path's observer may see this path's address, and in ICMP a part of the packet (RFC
// 1122, section 3.2.2). So a bound socket stays open after Close until no more packets arrive.
var lingerQuiet = 400 * time.Millisecond // silence after which no more packets are expected

const (
	lingerMost = 5 * time.Second
	lingerLook = 20 * time.Millisecond
)

// tied holds the open sockets that are bound to a device.
var tied = struct {
	sync.Mutex
	all map[io.Closer]struct{}
}{all: map[io.Closer]struct{}{}}

func remember(c io.Closer) {
	tied.Lock()
	defer tied.Unlock()
	tied.all[c] = struct{}{}
}

func forget(c io.Closer) {
	tied.Lock()
	defer tied.Unlock()
	delete(tied.all, c)
}

// lingering counts the sockets that users have closed but that are still open.
var lingering struct {
	sync.Mutex
	n    int
	none chan struct{} // closed when n falls to 0; nil if n is 0
}

// Settle closes all open sockets of paths, and waits until none is lingering, so that the process can end. That takes a few
// hundred milliseconds after the last close, at most five seconds.
func Settle() {
	tied.Lock()
	all := slices.Collect(maps.Keys(tied.all))
	tied.Unlock()
	for _, c := range all {
		c.Close()
	}
	lingering.Lock()
	none := lingering.none
	lingering.Unlock()
	if none != nil {
		<-none
	}
}

// answersElsewhere reports whether the kernel's answers to packets from the address would leave by another device.
func (b binding) answersElsewhere(from netip.Addr) bool {
	if b.device == "" || !from.IsValid() {
		return false
	}
	out, err := lookup(from, "", b.local.Addr(), 0)
	return err == nil && out.device != b.device
}

// finWait2 is the longest time in seconds that the kernel accepts for a connection in FIN-WAIT-2 (TCP_FIN_TIMEOUT_MAX). It keeps the
// socket for what exceeds TIME_WAIT, 60 s (tcp_close).
const finWait2 = 120

// stayBound makes the kernel keep the TCP socket for a minute after this process closed it or was killed, until the peer closes too.
// By default, it keeps only a record that is not bound: with IPv6 the peer's FIN would be acknowledged by the main route
// (tcp_v6_timewait_ack). It needs no rights.
func stayBound(fd int) { _ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_LINGER2, finWait2) }

// letGo keeps the socket under raw open after its close if the kernel's answers to packets from an address would leave by another
// device. Call it before closing. held is what hold returned.
func (b binding) letGo(raw syscall.RawConn, held heldID, from netip.Addr, stream bool) {
	elsewhere := b.answersElsewhere(from)
	if held != 0 {
		if stream { // closing sends no FIN while the keeper has the socket
			raw.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_WR) })
		}
		if release(held, elsewhere) {
			return
		}
	}
	if elsewhere {
		keep(raw, stream)
	}
}

// keep keeps the socket under raw open after its close.
func keep(raw syscall.RawConn, stream bool) {
	fd := -1
	raw.Control(func(open uintptr) {
		if n, err := unix.FcntlInt(open, unix.F_DUPFD_CLOEXEC, 0); err == nil {
			fd = n
		}
	})
	if fd < 0 {
		return
	}
	lingering.Lock()
	defer lingering.Unlock()
	if lingering.n++; lingering.n == 1 {
		lingering.none = make(chan struct{})
	}
	go func() {
		awaitQuiet(fd, stream)
		unix.Close(fd)
		lingering.Lock()
		defer lingering.Unlock()
		if lingering.n--; lingering.n == 0 {
			close(lingering.none)
			lingering.none = nil
		}
	}()
}

func awaitQuiet(fd int, stream bool) {
	heard := keeper.Heard(fd, stream)
	began := time.Now()
	for last := began; time.Since(last) < lingerQuiet && time.Since(began) < lingerMost; time.Sleep(lingerLook) {
		more, over := heard()
		if over {
			return
		}
		if more {
			last = time.Now()
		}
	}
}
