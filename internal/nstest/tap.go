package nstest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Tap hands on the packets that pass on devices of a namespace (packet(7)).
type Tap struct {
	t  testing.TB
	fd int
	// asked counts the calls of Drain; drained is the last of them before the socket was found empty.
	asked, drained atomic.Int64
}

// Passed is a packet on a device, from its network header on. The next packet overwrites Bytes.
type Passed struct {
	Device   string
	Outgoing bool // the namespace sent it
	Bytes    []byte
}

// Tap calls note with each packet that passes on the devices until the test ends, in order and from one goroutine.
func (n Namespace) Tap(t testing.TB, note func(Passed), devices ...string) *Tap {
	t.Helper()
	p, names := &Tap{t: t, fd: -1}, map[int]string{}
	n.Do(t, func() error {
		for _, device := range devices {
			link, err := netlink.LinkByName(device)
			if err != nil {
				return err
			}
			names[link.Attrs().Index] = device
		}
		all := int(binary.NativeEndian.Uint16([]byte{0, unix.ETH_P_ALL}))
		var err error
		if p.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, all); err != nil {
			return err
		}
		return errors.Join(unix.SetsockoptInt(p.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20),
			unix.SetsockoptTimeval(p.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 5000}))
	})
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		p.read(stop, names, note)
	}()
	t.Cleanup(func() { close(stop); <-done; unix.Close(p.fd) })
	return p
}

func (p *Tap) read(stop <-chan struct{}, names map[int]string, note func(Passed)) {
	for buffer := make([]byte, 1<<17); ; {
		select {
		case <-stop:
			return
		default:
		}
		asked := p.asked.Load()
		n, from, err := unix.Recvfrom(p.fd, buffer, 0)
		if errors.Is(err, unix.EAGAIN) {
			p.drained.Store(asked)
		}
		if at, ok := from.(*unix.SockaddrLinklayer); err == nil && ok && names[at.Ifindex] != "" {
			note(Passed{names[at.Ifindex], at.Pkttype == unix.PACKET_OUTGOING, slices.Clip(buffer[:n])})
		}
	}
}

// Drain returns when note has had every packet that passed before the call. It fails the test if the tap missed any.
func (p *Tap) Drain() {
	p.t.Helper()
	asked := p.asked.Add(1)
	for end := time.Now().Add(time.Minute); p.drained.Load() < asked; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			p.t.Fatal("the tap lags behind for a minute")
		}
	}
	if s, err := unix.GetsockoptTpacketStats(p.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS); err != nil || s.Drops > 0 {
		p.t.Fatal(fmt.Errorf("the tap missed packets: %+v, %w", s, err))
	}
}
