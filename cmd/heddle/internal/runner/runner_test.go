package runner

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"heddle/cmd/heddle/internal/control"
	"heddle/path"
	"heddle/split"
)

func TestCapturesAreOfTheirPaths(t *testing.T) {
	t.Setenv("HEDDLE_RUN_DIR", t.TempDir())
	dir := filepath.Join(t.TempDir(), "captures")
	r, err := Start(Options{Name: "office", Capture: dir, Paths: []path.Spec{{Name: "home", Kind: "if", Arg: "lo"}}})
	if err != nil {
		t.Fatal(err)
	}
	if r.Tap("home") == nil || r.Tap("lte") != nil {
		t.Error("home has no tap, or lte has one")
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "home.pcapng")); err != nil {
		t.Error(err)
	}
	r, err = Start(Options{Name: "office"}) // its name is free again
	if err != nil || r.Tap != nil {
		t.Fatalf("%v, %v", r, err)
	}
	r.Close()
}

// A request to stop returns once the name is free again.
func TestStopEndsTheBody(t *testing.T) {
	t.Setenv("HEDDLE_RUN_DIR", t.TempDir())
	r, err := Start(Options{Name: "office"})
	if err != nil {
		t.Fatal(err)
	}
	failed := errors.New("the body's own")
	running := make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		err := r.Run(context.Background(), func() []split.Status { return nil }, func(ctx context.Context) error {
			close(running)
			<-ctx.Done()
			return failed
		})
		r.Close()
		ended <- err
	}()
	<-running
	if err := control.Stop(t.Context(), "office"); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, failed) {
		t.Error(err)
	}
}
