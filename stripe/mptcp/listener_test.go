package mptcp

import (
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"heddle/identity"
	"heddle/internal/crowdtest"
	"heddle/internal/polltest"
	"heddle/stripe"
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
	if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
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

// listenForAll listens for the kernel's MPTCP on loopback, and lets every key in.
func listenForAll(t testing.TB, o stripe.ListenOptions) *Listener {
	t.Helper()
	if err := supported(); err != nil {
		t.Skip(err)
	}
	var config net.ListenConfig
	config.SetMultipathTCP(true)
	plain, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o.Accept = func(identity.Key) error { return nil }
	l, err := NewListener(plain, o)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Strangers do not keep a user out, however many connections they hold.
func TestUserGetsPastStrangers(t *testing.T) { siege(t) }

// BenchmarkSiege counts the attempts within a second; docs/results.md has the figures.
func BenchmarkSiege(b *testing.B) {
	for range b.N {
		siege(b)
	}
}

func siege(t testing.TB) {
	t.Helper()
	server, who := fresh(t), fresh(t)
	l := listenForAll(t, stripe.ListenOptions{Identity: server})
	var d net.Dialer
	d.SetMultipathTCP(true)
	crowdtest.Siege(t, l.Addr(), d, func(from netip.Addr) error {
		d := d
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0))
		raw, err := d.Dial("tcp", l.Addr().String())
		if err != nil {
			return err
		}
		defer raw.Close()
		_ = raw.SetDeadline(time.Now().Add(polltest.Patience))
		config, err := who.Client(server.Key(), Protocol)
		if err != nil {
			return err
		}
		secure := tls.Client(raw, config)
		if _, err := secure.Write(hello{paths: 1, min: 1}.encode()); err != nil {
			return err
		}
		return readAnswer(secure)
	})
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if n := l.Strangers(); n != 0 {
		t.Errorf("%d places are taken after the end", n)
	}
}

// A peer that is let in counts before its subflows are up, and one key has half of the places.
func TestMaxSessions(t *testing.T) {
	server := fresh(t)
	l := listenForAll(t, stripe.ListenOptions{Identity: server, MaxSessions: 3})
	// introduce opens one subflow, asks for some paths, and returns the answer.
	introduce := func(id identity.Identity, paths int) error {
		var d net.Dialer
		d.SetMultipathTCP(true)
		raw, err := d.Dial("tcp", l.Addr().String())
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

// counter is a log that counts its lines.
type counter struct{ lines atomic.Int64 }

func (c *counter) Write(p []byte) (int, error) {
	c.lines.Add(1)
	return len(p), nil
}

// Strangers do not fill the log.
func TestRefusedStrangersAreLoggedSeldom(t *testing.T) {
	if err := supported(); err != nil {
		t.Skip(err)
	}
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	log := &counter{}
	l, err := NewListener(plain, stripe.ListenOptions{Identity: fresh(t), Accept: func(identity.Key) error { return nil }, Log: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	const strangers = 200
	for range strangers {
		c, err := net.Dial("tcp", plain.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(polltest.Patience))
		_, _ = io.ReadAll(c) // it speaks plain TCP, and so is closed
		c.Close()
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if n := log.lines.Load(); n == 0 || n > strangers/2 {
		t.Errorf("%d lines about %d strangers", n, strangers)
	}
}
