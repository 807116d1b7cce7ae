// Package labtest gives world tests the binary under test and a world for each test. Do not use it outside tests.
package labtest

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"heddle/internal/filelock"
	"heddle/lab"
)

// Heddle is the path of the binary under test, set by [Main].
var Heddle string

// binaryVariable names a binary that is already built, which all test packages share.
const binaryVariable = "HEDDLE_TEST_BINARY"

// Main is the TestMain of a package of world tests. It uses the binary that HEDDLE_TEST_BINARY names, or builds one
// from the tree, and exits. Four tests run at once, since they mostly wait.
func Main(m *testing.M) { MainAtOnce(m, 4) }

// MainAtOnce is [Main] with so many tests at once, for a package with many tests that do little but wait.
func MainAtOnce(m *testing.M, most int) {
	lab.MaybeEnter()
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		flag.Set("test.parallel", strconv.Itoa(most))
	}
	var err error
	if Heddle, err = Binary(); err != nil {
		fmt.Fprintln(os.Stderr, "build heddle:", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// Binary returns the binary under test, for a package that needs it in some benchmark only.
func Binary() (string, error) {
	if given := os.Getenv(binaryVariable); given != "" {
		return given, nil
	}
	return build()
}

// build builds the binary below the root of the tree. The go command does nothing if it is up to date.
func build() (string, error) {
	root, err := treeRoot()
	if err != nil {
		return "", err
	}
	file := filepath.Join(root, "bin", "test", "heddle")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return "", err
	}
	// Two packages that build at once would overwrite each other's file.
	lock, err := filelock.Lock(file + ".lock")
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if out, err := exec.Command("go", "build", "-o", file, "heddle/cmd/heddle").CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return file, nil
}

func treeRoot() (string, error) {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "heddle").Output()
	if err != nil {
		return "", fmt.Errorf("find the root of the tree: %w", err)
	}
	return strings.TrimSpace(string(dir)), nil
}

// lookAtSources stats the sources of the binary, once. The go command reruns a test if a file that it looked at has
// changed. It does not see what other processes read, nor what happens before the first test.
var lookAtSources = sync.OnceValue(func() error {
	root, err := treeRoot()
	if err != nil {
		return err
	}
	return filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
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

// Need skips the test if this machine cannot make a world.
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

// Up makes a world for the duration of the test, or skips the test as [Need] does.
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
