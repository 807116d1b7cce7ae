package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"heddle/lab"
)

// The lab's commands with a real world.
func TestLabScript(t *testing.T) {
	if err := lab.Supported(); errors.Is(err, lab.ErrUnsupported) {
		t.Skip(err)
	}
	testscript.Run(t, testscript.Params{
		Dir: "lab/testdata/world",
		Setup: func(env *testscript.Env) error {
			name := fmt.Sprintf("test-%d-%s", os.Getpid(), filepath.Base(env.WorkDir))
			env.Setenv("WORLD", name)
			env.Defer(func() {
				if err := lab.TakeDown(name); err != nil && !errors.Is(err, lab.ErrNotUp) {
					t.Error(err)
				}
			})
			return nil
		},
	})
}
