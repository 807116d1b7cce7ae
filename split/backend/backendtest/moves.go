package backendtest

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"heddle/split"
)

// Session is a backend that runs in the client.
type Session interface {
	Run(context.Context) error
	Status() split.Status
	Close() error
}

// Backend describes one kind of backend to a test.
type Backend struct {
	Open  func(to string, name *Name, ready func()) Session // opens a session in the client, which looks name up often
	Clean func() error                                      // undoes what a session left
	Moved error                                             // the error that Run wraps if the server moved
}

// ServerMoves tests that nothing leaves to other addresses of the server's name, and nothing to the first one once the name
// has moved. A program may look up another address than the session.
func (w *World) ServerMoves(t *testing.T, backend Backend) {
	first, second := w.NewEcho(t, Server4), w.NewEcho(t, Server6)
	c := w.NewSocket(t, netip.AddrPort{}, netip.AddrPort{})
	var name Name
	name.Set(first.At, second.At)
	ready, ended := make(chan struct{}), make(chan error, 1)
	p := backend.Open("server.example:4433", &name, func() { close(ready) })
	go func() { ended <- w.Client.Run(func() error { return p.Run(t.Context()) }) }()
	select {
	case <-ready:
	case err := <-ended:
		t.Fatal(err)
	}
	if s := p.Status(); s.Server != first.At.String() || len(s.Warnings) == 0 {
		t.Errorf("it splits what is sent to %s; warnings %q", s.Server, s.Warnings)
	}
	if back := InVain(c, second.At, 1); back != 0 {
		t.Error("a datagram left to the other address")
	}
	name.Set(second.At)
	if err := <-ended; !errors.Is(err, backend.Moved) || !strings.Contains(err.Error(), second.At.String()) {
		t.Errorf("it ended with %v", err)
	}
	w.Client.Do(t, p.Close)
	for _, at := range []netip.AddrPort{first.At, second.At} {
		if back := InVain(c, at, 1); back != 0 {
			t.Errorf("a datagram left to %v after the end", at)
		}
	}
	w.Client.Do(t, backend.Clean)
	if back := Talk(c, second.At, 1, 0); back == 0 {
		t.Error("after cleaning nothing leaves")
	}
}

// Ready tests that packets sent after the session reports that it is ready leave and are answered. begin starts a session.
func (w *World) Ready(t *testing.T, begin func(server netip.AddrPort, ready func())) {
	echo := w.NewEcho(t, Server4)
	c := w.NewSocket(t, netip.AddrPort{}, netip.AddrPort{})
	told := make(chan error, 8)
	begin(echo.At, func() {
		_, err := c.WriteToUDPAddrPort([]byte("ready"), echo.At)
		told <- err
	})
	_ = c.SetReadDeadline(time.Now().Add(Patience))
	if n, _, err := c.ReadFromUDPAddrPort(make([]byte, 16)); n != 5 || err != nil {
		t.Fatalf("%d bytes came back: %v", n, err)
	}
	if err := <-told; err != nil || len(told) > 0 { // the answer may come before the sender is told that it sent
		t.Errorf("sent %d more times: %v", len(told), err)
	}
}
