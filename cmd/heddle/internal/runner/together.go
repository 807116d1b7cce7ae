package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"
	"sync/atomic"

	"github.com/mdlayher/sdnotify"

	"heddle/internal/text"
)

// Part is one of several runs in a process.
type Part struct {
	Name string
	Run  func(context.Context) error
}

// readyKey is the context key of the function that a part's [Runner] calls once it is ready.
type readyKey struct{}

func readyOf(ctx context.Context) func() {
	if ready, ok := ctx.Value(readyKey{}).(func()); ok {
		return ready
	}
	return func() {}
}

// Together runs parts concurrently until all have ended. If one fails, the others are stopped. Once all are ready, it
// notifies systemd if that started this process.
func Together(ctx context.Context, parts []Part, talk io.Writer) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	failed := make([]error, len(parts))
	var waiting atomic.Int32
	waiting.Store(int32(len(parts)))
	var running sync.WaitGroup
	for i, p := range parts {
		ready := sync.OnceFunc(func() {
			if waiting.Add(-1) == 0 {
				tellSystemd(text.Count(len(parts), "session")+" up", talk)
			}
		})
		running.Go(func() {
			if err := p.Run(context.WithValue(ctx, readyKey{}, ready)); err != nil {
				failed[i] = fmt.Errorf("%s: %w", p.Name, err)
				stop()
			}
		})
	}
	running.Wait()
	return errors.Join(failed...)
}

// tellSystemd sends READY (sd_notify(3)). It does nothing if systemd did not start us.
func tellSystemd(status string, talk io.Writer) {
	systemd, err := sdnotify.New()
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err == nil {
		defer systemd.Close()
		err = systemd.Notify(sdnotify.Ready, sdnotify.Statusf("%s", status))
	}
	if err != nil {
		fmt.Fprintln(talk, "heddle: cannot tell systemd:", err)
	}
}
