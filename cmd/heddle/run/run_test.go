package run

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"heddle/split"
)

func TestRunAllStopsAllWhereOneFails(t *testing.T) {
	failed := errors.New("no way")
	started, stopped := make(chan struct{}), make(chan struct{})
	err := runAll(t.Context(), []session{
		{name: "good", run: func(ctx context.Context) error {
			close(started)
			<-ctx.Done()
			close(stopped)
			return nil
		}},
		{name: "bad", run: func(context.Context) error { <-started; return failed }},
	})
	if !errors.Is(err, failed) || err.Error() != "bad: no way" {
		t.Errorf("runAll gives %v", err)
	}
	select {
	case <-stopped:
	default:
		t.Error("the good one was not stopped")
	}
}

func TestRunAllGoesOnWhereOneEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	err := runAll(ctx, []session{
		{name: "short", run: func(context.Context) error { close(ended); return nil }},
		{name: "long", run: func(ctx context.Context) error {
			<-ended
			if ctx.Err() != nil {
				return errors.New("stopped with the short one")
			}
			cancel()
			<-ctx.Done()
			return nil
		}},
	})
	if err != nil {
		t.Error(err)
	}
}

func TestNamedWriter(t *testing.T) {
	var out bytes.Buffer
	var writing sync.Mutex
	a := &namedWriter{name: "a", to: &out, writing: &writing}
	b := &namedWriter{to: &out, writing: &writing}
	fmt.Fprint(a, "one ")
	fmt.Fprint(b, "two\n")
	fmt.Fprint(a, "line\na is named\nrest")
	if got, want := out.String(), "two\na: one line\na is named\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// What systemd hears, when and only when all sessions are ready.
func TestTellSystemd(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "notify")
	systemd, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer systemd.Close()
	t.Setenv("NOTIFY_SOCKET", socket)
	asked := 0
	tellSystemd(t.Context(), []session{
		{name: "a", ready: func(context.Context) bool { asked++; return asked == 2 }},
		{name: "b", ready: func(context.Context) bool { return true }},
	}, t.Output())
	heard := make([]byte, 256)
	n, err := systemd.Read(heard)
	if err != nil || !strings.Contains(string(heard[:n]), "READY=1") || asked != 2 {
		t.Errorf("systemd heard %q, %v after %d questions", heard[:n], err, asked)
	}
	ctx, cancel := context.WithCancel(t.Context())
	tellSystemd(ctx, []session{{name: "never", ready: func(context.Context) bool { cancel(); return false }}}, t.Output())
	if err := systemd.SetReadDeadline(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if n, err := systemd.Read(heard); err == nil {
		t.Errorf("systemd heard %q of a session that is not ready", heard[:n])
	}
}

func TestSplitIsReadyOncePacketsMayLeave(t *testing.T) {
	for name, c := range map[string]struct {
		all   []split.Status
		ready bool
	}{
		"a relay without sessions": {nil, true},
		"a session of a relay":     {[]split.Status{{Backend: "relay", State: "stopped"}}, true},
		"a backend that starts":    {[]split.Status{{Backend: "kernel", State: "starting"}}, false},
		"too few paths":            {[]split.Status{{Backend: "route", State: "stopped"}}, false},
		"a backend that runs":      {[]split.Status{{Backend: "kernel", State: "running"}}, true},
	} {
		if got := splitReady(c.all); got != c.ready {
			t.Errorf("%s: %v", name, got)
		}
	}
}
