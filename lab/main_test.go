package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"testing"

	"golang.org/x/sys/unix"
)

// serveArg makes this program the background owner of a world, for tests of [Start].
const serveArg = "lab-test-serve"

func TestMain(m *testing.M) {
	MaybeEnter()
	if len(os.Args) == 3 && os.Args[1] == serveArg {
		ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM)
		defer stop()
		lasting := func(ctx context.Context, in *Instance) error { return in.Host("a").Command(ctx, "sleep", "1h").Start() }
		if err := Serve(ctx, Pair(), Options{Name: os.Args[2]}, lasting); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// needSupport skips the test where this machine can have no world.
func needSupport(t *testing.T) {
	t.Helper()
	if err := Supported(); errors.Is(err, ErrUnsupported) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
}

// needWorld makes the world, or skips the test where this machine can have none.
func needWorld(t *testing.T, w World) *Instance {
	t.Helper()
	needSupport(t)
	in, err := Up(t.Context(), w, Options{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := in.Down(); err != nil {
			t.Error(err)
		}
	})
	return in
}
