package mptcp

import (
	"errors"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"heddle/identity"
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
	l, err := NewListener(&short{Listener: plain}, ListenOptions{Identity: fresh(t), Accept: func(identity.Key) error { return nil }})
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
