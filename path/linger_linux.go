package path

import (
	"errors"
	"io"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
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

// keep keeps the socket under raw open after its close. Call it before closing.
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
	heard := hears(fd)
	if stream {
		unix.Shutdown(fd, unix.SHUT_WR)
		heard = grows(fd)
	}
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

// hears discards received datagrams of a UDP socket, and reports whether there were any.
func hears(fd int) func() (more, over bool) {
	return func() (more, over bool) {
		for range 4096 {
			_, _, err := unix.Recvfrom(fd, nil, unix.MSG_DONTWAIT|unix.MSG_TRUNC)
			if errors.Is(err, unix.EAGAIN) {
				return more, false
			}
			more = true
		}
		return true, false
	}
}

// grows reports whether more data arrived on a TCP socket. It reads nothing, so that the window closes and the sender stops.
// Only then is the reset, which the kernel sends because of unread data, the last packet of both sides.
func grows(fd int) func() (more, over bool) {
	had := -1
	return func() (more, over bool) {
		info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		if err != nil || info.State == unix.BPF_TCP_TIME_WAIT || info.State == unix.BPF_TCP_CLOSE {
			return false, true // both sides closed the connection (RFC 9293, section 3.3.2)
		}
		waiting, err := unix.IoctlGetInt(fd, unix.SIOCINQ)
		if err != nil {
			return false, true
		}
		more, had = waiting != had, waiting
		return more, false
	}
}
