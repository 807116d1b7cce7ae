package lab

import (
	"errors"
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	MaybeEnter()
	os.Exit(m.Run())
}

// needWorld makes the world, or skips the test where this machine can have none.
func needWorld(t *testing.T, w World) *Instance {
	t.Helper()
	in, err := Up(t.Context(), w, Options{Seed: 1})
	if errors.Is(err, ErrUnsupported) {
		t.Skip(err)
	}
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
