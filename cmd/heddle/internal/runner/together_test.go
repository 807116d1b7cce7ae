package runner

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestTogetherStopsAllWhereOneFails(t *testing.T) {
	failed := errors.New("no way")
	started, stopped := make(chan struct{}), make(chan struct{})
	err := Together(t.Context(), []Part{
		{Name: "good", Run: func(ctx context.Context) error {
			close(started)
			<-ctx.Done()
			close(stopped)
			return nil
		}},
		{Name: "bad", Run: func(context.Context) error { <-started; return failed }},
	}, t.Output())
	if !errors.Is(err, failed) || err.Error() != "bad: no way" {
		t.Errorf("Together gives %v", err)
	}
	select {
	case <-stopped:
	default:
		t.Error("the good one was not stopped")
	}
}

func TestTogetherGoesOnWhereOneEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	err := Together(ctx, []Part{
		{Name: "short", Run: func(context.Context) error { close(ended); return nil }},
		{Name: "long", Run: func(ctx context.Context) error {
			<-ended
			if ctx.Err() != nil {
				return errors.New("stopped with the short one")
			}
			cancel()
			<-ctx.Done()
			return nil
		}},
	}, t.Output())
	if err != nil {
		t.Error(err)
	}
}

// Systemd hears READY once all parts are ready, and not before.
func TestSystemdHearsThatAllAreReady(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("HEDDLE_RUN_DIR", dir)
	socket := filepath.Join(dir, "notify")
	systemd, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer systemd.Close()
	t.Setenv("NOTIFY_SOCKET", socket)
	hear := func(wait time.Duration) string {
		heard := make([]byte, 256)
		if err := systemd.SetReadDeadline(time.Now().Add(wait)); err != nil {
			t.Fatal(err)
		}
		n, _ := systemd.Read(heard)
		return string(heard[:n])
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	first, second := make(chan struct{}), make(chan struct{})
	part := func(name string, then func(r *Runner)) Part {
		return Part{name, func(ctx context.Context) error {
			return Run(ctx, Options{Name: name}, func(ctx context.Context, r *Runner) error {
				then(r)
				<-ctx.Done()
				return nil
			})
		}}
	}
	ended := make(chan error, 1)
	go func() {
		ended <- Together(ctx, []Part{
			part("a", func(r *Runner) { r.Ready(); r.Ready(); close(first) }), // twice is once
			part("b", func(r *Runner) { <-second; r.Ready() }),
		}, t.Output())
	}()
	<-first
	if got := hear(50 * time.Millisecond); got != "" {
		t.Errorf("with one of two ready systemd heard %q", got)
	}
	close(second)
	if got := hear(time.Minute); !strings.Contains(got, "READY=1") || !strings.Contains(got, "2 sessions up") {
		t.Errorf("systemd heard %q", got)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
