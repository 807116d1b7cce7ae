package gateway

import (
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// An agent that is silent, as one on a machine that stands still, holds up a connection for less than two seconds.
func TestSilentAgentIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer near.Close()
		defer far.Close()
		go io.Copy(io.Discard, far)
		begun := time.Now()
		if err := ask(near, []byte("state"), patience([]string{"a"}, true), moveReady); !errors.Is(err, errSilent) || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("it fails with %v", err)
		}
		if waited := time.Since(begun); waited != answerFor || waited >= 2*time.Second {
			t.Errorf("it waited for %v", waited)
		}
	})
}

// addressed is a connection to an address.
type addressed struct {
	waiter
	to net.TCPAddr
}

func (a *addressed) RemoteAddr() net.Addr { return &a.to }

func TestWaysToOneThatIsSilent(t *testing.T) {
	var w ways[string]
	at := func(port int) *addressed { return &addressed{to: net.TCPAddr{IP: net.IPv4(192, 0, 2, 7), Port: port}} }
	silent := at(4444)
	w.drop("a", silent.RemoteAddr()) // nothing waits
	other, same := at(4445), at(4444)
	w.keep("a", other)
	w.keep("a", same)
	w.keep("b", silent)
	w.drop("a", silent.RemoteAddr())
	if !same.closed || other.closed || silent.closed || w.take("a") != other || w.take("b") != silent {
		t.Errorf("closed: %v, %v, %v", same.closed, other.closed, silent.closed)
	}
	if w.keep("a", same); w.take("a") != same {
		t.Error("another one is taken")
	}
	if got := others([]string{"192.0.2.7:4444", "192.0.2.7:4445"}, silent.RemoteAddr()); !slices.Equal(got, []string{"192.0.2.7:4445"}) {
		t.Errorf("the others are %q", got)
	}
	if got := others([]string{"agent.example:4444", "192.0.2.7:4445"}, silent.RemoteAddr()); got != nil { // it may be either
		t.Errorf("the others are %q", got)
	}
}
