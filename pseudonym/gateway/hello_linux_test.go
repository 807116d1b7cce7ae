package gateway

import (
	"fmt"
	"log/slog"
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"heddle/internal/polltest"
)

// The kernel keeps clients back that say nothing, though not for ever: the gateway limits them too.
func TestSilentClients(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := New(Options{Zone: zone, Router: &routes{}, Log: slog.New(slog.DiscardHandler)})
	go func() { _ = g.Serve(t.Context(), l) }()
	raw, err := l.(*net.TCPListener).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	polltest.Await(t, "that the kernel keeps clients back", func() (keeps bool) {
		err := raw.Control(func(fd uintptr) {
			n, err := unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_DEFER_ACCEPT)
			keeps = err == nil && n > 0
		})
		return err == nil && keeps
	})
	silent, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	polltest.Until(t, func() error {
		if n := g.places.Count() + int(g.Counts().Refused); n != 1 {
			return fmt.Errorf("%d clients count", n)
		}
		return nil
	})
}
