//go:build linux

package unsent

import (
	"errors"
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"heddle/internal/tcptest"
)

type wrapped struct{ net.Conn }

func (w wrapped) NetConn() net.Conn { return w.Conn }

func TestLimit(t *testing.T) {
	c, err := net.Dial("tcp", tcptest.Serve(t, tcptest.Echo).String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const bytes = 12345
	if err := Limit(wrapped{wrapped{c}}, bytes); err != nil {
		t.Fatal(err)
	}
	var got int
	if err := Socket(c).Control(func(fd uintptr) { got, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT) }); err != nil || got != bytes {
		t.Errorf("the limit is %d: %v", got, err)
	}
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	if err := Limit(wrapped{a}, bytes); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("a pipe has a limit: %v", err)
	}
}
