package runner

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"heddle/cmd/heddle/internal/control"
	"heddle/path"
)

func TestCapturesAreOfTheirPaths(t *testing.T) {
	t.Setenv("HEDDLE_RUN_DIR", t.TempDir())
	dir := filepath.Join(t.TempDir(), "captures")
	o := Options{Name: "office", Capture: dir, Paths: []path.Spec{{Name: "home", Kind: "if", Arg: "lo"}}}
	err := Run(t.Context(), o, func(_ context.Context, r *Runner) error {
		if r.Tap("home") == nil || r.Tap("lte") != nil {
			t.Error("home has no tap, or lte has one")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "home.pcapng")); err != nil {
		t.Error(err)
	}
	err = Run(t.Context(), Options{Name: "office"}, func(_ context.Context, r *Runner) error { // its name is free again
		if r.Tap != nil {
			t.Error("there is a tap without a capture")
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// A request to stop returns once the name is free again.
func TestStopEndsTheBody(t *testing.T) {
	t.Setenv("HEDDLE_RUN_DIR", t.TempDir())
	failed := errors.New("the body's own")
	running := make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		ended <- Run(context.Background(), Options{Name: "office"}, func(ctx context.Context, _ *Runner) error {
			close(running)
			<-ctx.Done()
			return failed
		})
	}()
	<-running
	if err := control.Stop(t.Context(), "office"); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, failed) {
		t.Error(err)
	}
}
