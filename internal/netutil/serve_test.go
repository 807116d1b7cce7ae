package netutil

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// script is a listener that gives one error or connection after the other, and then waits to be closed.
type script struct {
	net.Listener
	steps  []error
	at     []time.Duration
	begin  time.Time
	closed chan struct{}
}

func newScript(steps ...error) *script {
	return &script{steps: steps, begin: time.Now(), closed: make(chan struct{})}
}

func (s *script) Accept() (net.Conn, error) {
	s.at = append(s.at, time.Since(s.begin))
	if len(s.steps) == 0 {
		<-s.closed
		return nil, net.ErrClosed
	}
	err := s.steps[0]
	s.steps = s.steps[1:]
	if err != nil {
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: err}
	}
	c, _ := net.Pipe()
	return c, nil
}

func (s *script) Close() error {
	select {
	case <-s.closed:
	default:
		close(s.closed)
	}
	return nil
}

func system(e syscall.Errno) error { return os.NewSyscallError("accept4", e) }

// A lack of descriptors passes: the pauses double up to a second, and are short again after a connection.
func TestServeWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lack := slices.Repeat([]error{system(syscall.EMFILE)}, 9)
		l := newScript(slices.Concat(lack, []error{nil, system(syscall.ECONNABORTED), system(syscall.ENOBUFS), nil})...)
		ctx, cancel := context.WithCancel(t.Context())
		served := 0
		ended := make(chan error, 1)
		go func() { ended <- Serve(ctx, l, func(net.Conn) { served++ }) }()
		synctest.Wait()
		time.Sleep(time.Minute)
		synctest.Wait()
		if served != 2 {
			t.Errorf("%d connections of 2", served)
		}
		const ms = time.Millisecond
		want := []time.Duration{0, 5 * ms, 15 * ms, 35 * ms, 75 * ms, 155 * ms, 315 * ms, 635 * ms, 1275 * ms, 2275 * ms,
			2275 * ms, 2280 * ms, 2290 * ms, 2290 * ms}
		if !slices.Equal(l.at, want) {
			t.Errorf("accepted at %v", l.at)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("ended by %v", err)
		}
	})
}

func TestServeEnds(t *testing.T) {
	for name, c := range map[string]struct{ says, want error }{
		"closed":   {net.ErrClosed, net.ErrClosed},
		"no error": {io.EOF, io.EOF}, // of a listener that is not the system's
		"bad file": {system(syscall.EBADF), syscall.EBADF},
		"no such":  {system(syscall.EINVAL), syscall.EINVAL},
	} {
		t.Run(name, func(t *testing.T) {
			l := newScript(c.says)
			if err := Serve(t.Context(), l, func(net.Conn) { t.Error("served") }); !errors.Is(err, c.want) {
				t.Errorf("ended by %v", err)
			}
			select {
			case <-l.closed:
			default:
				t.Error("the listener is still open")
			}
		})
	}
}

// The end of a context ends a pause too, also for servers with a loop of their own.
func TestServeEndsInPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := Patient(newScript(slices.Repeat([]error{system(syscall.ENFILE)}, 100)...))
		begin := time.Now()
		time.AfterFunc(1500*time.Millisecond, func() { l.Close() })
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) || time.Since(begin) != 1500*time.Millisecond {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin = time.Now()
		err := Serve(ctx, newScript(slices.Repeat([]error{system(syscall.ENFILE)}, 100)...), func(net.Conn) {})
		if err != nil || time.Since(begin) != time.Second {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
	})
}

// What comes in as the context ends is closed, not served.
func TestServeAfterTheEnd(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	ours, theirs := net.Pipe()
	if err := Serve(ctx, one{ours}, func(net.Conn) { t.Error("served") }); err != nil {
		t.Error(err)
	}
	_ = theirs.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := theirs.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the connection was left open: %v", err)
	}
}

// one is a listener that gives one connection, closed or not.
type one struct{ net.Conn }

func (o one) Accept() (net.Conn, error) { return o.Conn, nil }
func (one) Close() error                { return nil }

func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		if Sleep(t.Context(), time.Second) != nil || time.Since(begin) != time.Second {
			t.Error("not a second")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if !errors.Is(Sleep(ctx, time.Minute), context.DeadlineExceeded) || time.Since(begin) != 2*time.Second {
			t.Error("slept on")
		}
	})
}
