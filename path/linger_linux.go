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

// The kernel answers what arrives for a socket that is gone: with an ICMP error, or with a reset of TCP. Nothing ties such
// an answer to the device, so where the main route leads elsewhere, another path's observer sees this path's address, and
// in ICMP a part of the packet (RFC 1122, section 3.2.2). So a tied socket outlives its closing until nothing more comes.
var lingerQuiet = 400 * time.Millisecond // without a packet: nothing more is on its way

const (
	lingerMost = 5 * time.Second
	lingerLook = 20 * time.Millisecond
)

// tied holds the sockets that are open and tied to a device.
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

// lingering counts the sockets that are closed for their users and open for the kernel.
var lingering struct {
	sync.Mutex
	n    int
	none chan struct{} // closed when n falls to 0; nil where it is
}

// Settle closes what paths have open, and waits until no closed socket is kept any more, so that the process can end: a few
// hundred milliseconds after the last was closed, at most five seconds, and not at all where none is kept.
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

// answersElsewhere reports whether the kernel's own answers to what comes from there would leave by another device.
func (b binding) answersElsewhere(from netip.Addr) bool {
	if b.device == "" || !from.IsValid() {
		return false
	}
	out, err := lookup(from, "", b.local.Addr(), 0)
	return err == nil && out.device != b.device
}

// keep holds the socket under raw open after its closing. It must be called before that.
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

// hears throws away what arrived for a UDP socket, and tells whether something did.
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

// grows tells whether more arrived for a TCP socket. It reads nothing, so that the sender's window closes and it stops; only
// then is a reset, which the kernel sends where something is unread, the last that either side sends.
func grows(fd int) func() (more, over bool) {
	had := -1
	return func() (more, over bool) {
		info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		if err != nil || info.State == unix.BPF_TCP_TIME_WAIT || info.State == unix.BPF_TCP_CLOSE {
			return false, true // both sides have ended the connection (RFC 9293, section 3.3.2)
		}
		waiting, err := unix.IoctlGetInt(fd, unix.SIOCINQ)
		if err != nil {
			return false, true
		}
		more, had = waiting != had, waiting
		return more, false
	}
}
