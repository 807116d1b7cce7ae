package pacing

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"heddle/internal/tcptest"
	"heddle/internal/unsent"
)

type wrapped struct{ *net.TCPConn }

func (w wrapped) NetConn() net.Conn { return w.TCPConn }

// dial connects to an echo with a congestion control.
func dial(t *testing.T, control string) *Conn {
	t.Helper()
	c, err := net.Dial("tcp", tcptest.Serve(t, tcptest.Echo).String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	of(t, c, func(fd int) error {
		err := unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, control)
		if errors.Is(err, unix.ENOENT) {
			t.Skipf("typed skip: the kernel has no %s: modprobe tcp_%s", control, control)
		}
		return err
	})
	return New(wrapped{c.(*net.TCPConn)})
}

// of does something with the socket of a connection.
func of(t *testing.T, c net.Conn, do func(fd int) error) {
	t.Helper()
	var failed error
	if err := unsent.Socket(c).Control(func(fd uintptr) { failed = do(int(fd)) }); err != nil || failed != nil {
		t.Fatal(err, failed)
	}
}

// bounded returns the bound of a socket, in bytes per second.
func bounded(t *testing.T, c net.Conn) (rate int) {
	t.Helper()
	of(t, c, func(fd int) (err error) {
		rate, err = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MAX_PACING_RATE)
		return err
	})
	return rate
}

// echo writes bytes, and waits until they come back.
func echo(t *testing.T, c net.Conn, bytes int) {
	t.Helper()
	b := make([]byte, bytes)
	if _, err := c.Write(b); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, b); err != nil {
		t.Fatal(err)
	}
}

// lossy is a sample of a connection that loses packets, and stale is the time since BBR last knew the round trip.
var lossy = sample{rtt: time.Hour, delivered: 80_000, sent: 100, lost: 50, segment: 1400}

const stale = searches + time.Second

func TestOthersAreLeftAlone(t *testing.T) {
	c := dial(t, "reno")
	c.ask = func(uintptr) (sample, error) { return lossy, nil }
	before := bounded(t, c)
	echo(t, c, 1000)
	if after := bounded(t, c); after != before {
		t.Errorf("Reno is bounded to %d", after)
	}
	c.renewed = c.renewed.Add(-stale)
	if n := c.Least(); n != 0 {
		t.Errorf("Reno wants %d bytes", n)
	}
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	go func() { _, _ = io.Copy(b, b) }()
	echo(t, New(a), 1000)
	if err := New(a).CloseWrite(); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("a pipe ends one direction: %v", err)
	}
}

func TestKernel(t *testing.T) {
	c := dial(t, "bbr")
	echo(t, c, 1000)
	echo(t, c, 1000)
	of(t, c, func(fd int) error {
		s, err := ask(uintptr(fd))
		if s.rtt <= 0 || s.least <= 0 || s.delivered == 0 || s.sent < 2 || s.lost != 0 || s.segment < 500 {
			t.Errorf("the kernel says %+v", s)
		}
		return err
	})
}

func TestConnIsBounded(t *testing.T) {
	c := dial(t, "bbr")
	asked := 0
	c.ask = func(uintptr) (sample, error) {
		asked++
		return lossy, nil
	}
	echo(t, c, 1000)
	echo(t, c, 1000)
	if asked != 1 {
		t.Errorf("%d samples in a round trip", asked)
	}
	if rate := bounded(t, c); rate != 100_000 {
		t.Errorf("the bound is %d", rate)
	}
	if err := c.CloseWrite(); err != nil {
		t.Error(err)
	}
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the echo goes on after the end: %v", err)
	}
}

func TestLeast(t *testing.T) {
	c := dial(t, "bbr")
	c.ask = func(uintptr) (sample, error) { return lossy, nil }
	ago := func(d time.Duration) { c.renewed = time.Now().Add(-d) }
	if n := c.Least(); n != 0 {
		t.Errorf("a new connection wants %d bytes", n)
	}
	ago(stale)
	if n := c.Least(); n != int(lossy.segment) {
		t.Errorf("after a pause it wants %d bytes", n)
	}
	if n := c.Least(); n != 0 {
		t.Errorf("soon after that it wants %d bytes", n)
	}
	ago(stale)
	busy := lossy
	busy.inFlight = 1
	c.ask = func(uintptr) (sample, error) { return busy, nil }
	if n := c.Least(); n != 0 {
		t.Errorf("while packets are in flight it wants %d bytes", n)
	}
	c.ask = func(uintptr) (sample, error) { return lossy, nil }
	if n := c.Least(); n != int(lossy.segment) {
		t.Errorf("after them it wants %d bytes", n)
	}
}

func TestKernelFlow(t *testing.T) {
	c := dial(t, "bbr")
	echo(t, c, 1000)
	echo(t, c, 1000)
	var all Shares
	m := all.Join("link", c)
	defer m.Leave()
	f, err := m.ask()
	if err != nil || f.rtt <= 0 || f.least <= 0 || f.least > f.rtt*10 || f.arrived < 2 || f.sent < 2 || f.lost != 0 || f.segment < 500 || f.window < 2 || f.out != 0 || f.speed() <= 0 {
		t.Errorf("the kernel says %+v, %v", f, err)
	}
	turn := m.Begin()
	defer turn.End()
	turn.Wait(1000) // nothing is under way
	c.Close()
	if _, err := m.ask(); err == nil {
		t.Error("the kernel knows a closed connection")
	}
}
