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
func dial(t *testing.T, control string) net.Conn {
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
	return wrapped{c.(*net.TCPConn)}
}

// of does something with the socket of a connection.
func of(t *testing.T, c net.Conn, do func(fd int) error) {
	t.Helper()
	var failed error
	if err := unsent.Socket(c).Control(func(fd uintptr) { failed = do(int(fd)) }); err != nil || failed != nil {
		t.Fatal(err, failed)
	}
}

func TestConnWithoutBBR(t *testing.T) {
	if c := dial(t, "reno"); Conn(c) != c {
		t.Error("Conn bounds Reno")
	}
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	if Conn(a) != a {
		t.Error("Conn bounds a pipe")
	}
}

func TestConn(t *testing.T) {
	raw := dial(t, "bbr")
	c, ok := Conn(raw).(*conn)
	if !ok {
		t.Fatal("Conn does not bound BBR")
	}
	write := func() { // and wait until it is acknowledged
		t.Helper()
		b := make([]byte, 1000)
		if _, err := c.Write(b); err != nil {
			t.Fatal(err)
		}
		for got := 0; got < len(b); {
			n, err := c.Read(b[got:])
			if err != nil {
				t.Fatal(err)
			}
			got += n
		}
	}
	var kernel sample
	c.ask = func(fd uintptr) (s sample, err error) {
		kernel, err = ask(fd)
		return kernel, err
	}
	write()
	c.next = time.Time{}
	write()
	if kernel.rtt <= 0 || kernel.delivered == 0 || kernel.sent < 2 || kernel.lost != 0 {
		t.Errorf("the kernel says %+v", kernel)
	}

	asked := 0
	c.ask = func(uintptr) (sample, error) {
		asked++
		return sample{rtt: time.Hour, delivered: 80_000, sent: 100, lost: 50}, nil
	}
	c.next, c.bound = time.Time{}, bound{}
	write()
	write()
	if asked != 1 {
		t.Errorf("%d samples in a round trip", asked)
	}
	of(t, c, func(fd int) error {
		if rate, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MAX_PACING_RATE); err != nil || rate != 100_000 {
			t.Errorf("the bound is %d: %v", rate, err)
		}
		return nil
	})
	if err := c.CloseWrite(); err != nil {
		t.Error(err)
	}
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the echo goes on after the end: %v", err)
	}
}
