package netutil

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"
)

func TestQuick(t *testing.T) {
	a, b := pair(t)
	near, far := Quick(a), Quick(b)
	_ = near.SetReadDeadline(time.Unix(1, 0))
	if _, err := near.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after the deadline it reads %v", err)
	}
	_ = near.SetReadDeadline(time.Time{})
	said := bytes.Repeat([]byte("much"), 1<<20) // more than buffers hold
	sent := make(chan error, 1)
	go func() {
		_, err := far.Write(said)
		sent <- errors.Join(err, far.Close())
	}()
	heard, err := io.ReadAll(near)
	if err = errors.Join(err, <-sent); err != nil || !bytes.Equal(heard, said) {
		t.Errorf("%d bytes arrive, %v", len(heard), err)
	}
	if n, err := near.Read(nil); n != 0 || err != nil {
		t.Errorf("nothing to read: %d, %v", n, err)
	}
	if _, err := far.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

// A peer learns of a reset, and does not take it for the end.
func TestQuickReset(t *testing.T) {
	a, b := pair(t)
	Reset(Quick(a))
	if _, err := Quick(b).Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the peer reads %v", err)
	}
	near, _ := net.Pipe()
	if Quick(near) != near {
		t.Error("a connection that is none of the kernel is another one")
	}
}
