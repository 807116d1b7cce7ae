package tcprepair

import (
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"heddle/internal/nstest"
)

// What an observer sees of a connection does not become that of the new machine, which is set otherwise.
func TestMoveKeepsWhatObserversSee(t *testing.T) {
	w := newWorld(t, false, false)
	w.second.Do(t, func() error {
		own, err := nstest.Get("ipv4/tcp_congestion_control")
		if own == "reno" {
			t.Skip("typed skip: this kernel has one congestion control alone")
		}
		return errors.Join(err, nstest.Set("ipv4/ip_no_pmtu_disc", "1"))
	})
	w.first.Do(t, func() error { return nstest.Set("ipv4/tcp_congestion_control", "reno") })
	var packets, fragments atomic.Int64
	tap := w.second.Tap(t, func(p nstest.Passed) {
		if b := p.Bytes; p.Outgoing && len(b) >= 20 && b[0]>>4 == 4 && b[9] == unix.IPPROTO_TCP {
			packets.Add(1)
			if b[6]&0x40 == 0 { // DF
				fragments.Add(1)
			}
		}
	}, "up")
	client, server := w.connect()
	before := segments(t, server)
	moved, s := w.move(server, second, Options{})
	if s.Congestion != "reno" {
		t.Errorf("the state says %q", s.Congestion)
	}
	var congestion string
	err := control(moved, func(fd int) (err error) {
		congestion, err = unix.GetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION)
		return err
	})
	if err != nil || congestion != "reno" {
		t.Errorf("congestion control %q, %v", congestion, err)
	}
	send(t, moved, stream(1, 64<<10))
	if _, err := io.ReadFull(client, make([]byte, 64<<10)); err != nil {
		t.Fatal(err)
	}
	if after := segments(t, moved); before < 1000 || after != before {
		t.Errorf("segments have up to %d bytes, and had %d", after, before)
	}
	tap.Drain()
	if packets.Load() == 0 || fragments.Load() > 0 {
		t.Errorf("%d packets of %d may be fragmented", fragments.Load(), packets.Load())
	}
}

// segments returns how many bytes the kernel puts into a segment.
func segments(t *testing.T, c *net.TCPConn) (bytes uint32) {
	t.Helper()
	err := control(c, func(fd int) error {
		info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		if err == nil {
			bytes = info.Snd_mss
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return bytes
}

// A machine without the congestion control takes its own.
func TestMoveToAMachineWithoutTheCongestionControl(t *testing.T) {
	w := newWorld(t, false, false)
	client, server := w.connect()
	_ = client
	held, s := hold(t, server)
	s.Congestion = "none-such"
	w.second.Do(t, func() error {
		h, err := Restore(s, Options{})
		if err != nil {
			return err
		}
		return h.Close()
	})
	if err := held.Close(); err != nil {
		t.Error(err)
	}
}
