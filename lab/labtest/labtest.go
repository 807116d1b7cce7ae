// Package labtest is what world tests share: the binary under test, and a world for each test.
//
// Do not use it outside tests.
package labtest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"heddle/lab"
)

// Heddle is the path of the binary under test, once [Main] has built it.
var Heddle string

// Main is the TestMain of a package of world tests. It builds heddle from the tree, runs the tests and exits.
func Main(m *testing.M) {
	lab.MaybeEnter()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "heddle-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	Heddle = filepath.Join(dir, "heddle")
	if out, err := exec.Command("go", "build", "-o", Heddle, "heddle/cmd/heddle").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build heddle: %v: %s\n", err, out)
		return 1
	}
	return m.Run()
}

// lookAtSources stats what the binary is made of, once. The go command notes which files a test looks at, and runs it again
// where one has changed; what other processes read it does not see, nor what is done before the first test.
var lookAtSources = sync.OnceValue(func() error {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return fmt.Errorf("find the sources: %w", err)
	}
	return filepath.WalkDir(strings.TrimSpace(string(dir)), func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := entry.Name(); entry.IsDir() && (strings.HasPrefix(name, ".") || name == "eval") {
			return filepath.SkipDir
		} else if strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") {
			_, err = os.Stat(file)
		}
		return err
	})
})

// Need skips the test where this machine can have no world.
func Need(t *testing.T) {
	t.Helper()
	if err := lookAtSources(); err != nil {
		t.Fatal(err)
	}
	if err := lab.Supported(); errors.Is(err, lab.ErrUnsupported) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
}

// Up makes a world that ends with the test, or skips the test as [Need] does.
func Up(t *testing.T, w lab.World) *lab.Instance {
	t.Helper()
	Need(t)
	in, err := lab.Up(t.Context(), w, lab.Options{Seed: 1})
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
