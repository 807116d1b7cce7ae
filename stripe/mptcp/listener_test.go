package mptcp

import (
	"crypto/tls"
	"errors"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"heddle/identity"
	"heddle/internal/polltest"
	"heddle/stripe"
	"heddle/stripe/door"
)

// short is a listener on a machine that has no descriptor left, once.
type short struct {
	net.Listener
	failed atomic.Bool
}

func (s *short) Accept() (net.Conn, error) {
	if !s.failed.Swap(true) {
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
	}
	return s.Listener.Accept()
}

// One failed accept must not make a listener deaf.
func TestListenerOutlivesLackOfDescriptors(t *testing.T) {
	if err := supported(); err != nil {
		t.Skip(err)
	}
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l, err := NewListener(&short{Listener: plain}, stripe.ListenOptions{Identity: fresh(t), Accept: func(identity.Key) error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", plain.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	// It is accepted, and then closed since it speaks plain TCP.
	if err := c.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("nobody accepts any more")
	}
	if err := l.Close(); err != nil {
		t.Errorf("closed: %v", err)
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("accept after the end: %v", err)
	}
}

// One source must not take all the places of those who have not proved a key.
func TestStrangersOfOneSource(t *testing.T) {
	if err := supported(); err != nil {
		t.Skip(err)
	}
	var config net.ListenConfig
	config.SetMultipathTCP(true)
	plain, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l, err := NewListener(plain, stripe.ListenOptions{Identity: fresh(t), Accept: func(identity.Key) error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	// connect says nothing, and gives why the connection ended where it is refused.
	connect := func(from byte, refused bool) error {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, from)}}
		d.SetMultipathTCP(true)
		c, err := d.Dial("tcp", plain.Addr().String())
		if err != nil {
			return err
		}
		t.Cleanup(func() { c.Close() })
		if refused {
			_ = c.SetReadDeadline(time.Now().Add(polltest.Patience))
			_, err = c.Read(make([]byte, 1))
		}
		return err
	}
	here := func(n int) func() bool { return func() bool { return l.Strangers() == n } }
	for range door.PerSource {
		if err := connect(1, false); err != nil {
			t.Fatal(err)
		}
	}
	polltest.Await(t, "all that one source may have", here(door.PerSource))
	if err := connect(1, true); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("one more from there: %v", err)
	}
	if err := connect(2, false); err != nil {
		t.Error(err)
	}
	polltest.Await(t, "one from elsewhere", here(door.PerSource+1))
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if n := l.Strangers(); n != 0 {
		t.Errorf("%d places are taken after the end", n)
	}
}

// A peer that is let in counts before its subflows are up, and one key has half of the places.
func TestMaxSessions(t *testing.T) {
	if err := supported(); err != nil {
		t.Skip(err)
	}
	var config net.ListenConfig
	config.SetMultipathTCP(true)
	plain, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := fresh(t)
	l, err := NewListener(plain, stripe.ListenOptions{Identity: server, Accept: func(identity.Key) error { return nil }, MaxSessions: 3})
	if err != nil {
		t.Fatal(err)
	}
	// introduce opens one subflow, asks for some paths, and returns the answer.
	introduce := func(id identity.Identity, paths int) error {
		var d net.Dialer
		d.SetMultipathTCP(true)
		raw, err := d.Dial("tcp", plain.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { raw.Close() })
		config, err := id.Client(server.Key(), Protocol)
		if err != nil {
			t.Fatal(err)
		}
		secure := tls.Client(raw, config)
		if _, err := secure.Write(hello{paths: paths, min: paths}.encode()); err != nil {
			t.Fatal(err)
		}
		return readAnswer(secure)
	}
	greedy := fresh(t)
	if err := introduce(greedy, 1); err != nil {
		t.Fatal(err)
	}
	if err := introduce(greedy, 2); err != nil {
		t.Fatal(err)
	}
	var refusal *Refusal
	if err := introduce(greedy, 1); !errors.As(err, &refusal) {
		t.Errorf("a key has more than half of the places: %v", err)
	}
	if err := introduce(fresh(t), 2); err != nil {
		t.Errorf("another key is not let in: %v", err)
	}
	if err := introduce(fresh(t), 1); !errors.As(err, &refusal) {
		t.Errorf("more are let in than there are places: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	polltest.Await(t, "all places free after the end", func() bool { return l.places.Count() == 0 })
}
