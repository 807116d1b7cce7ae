//go:build unix

package atomicfile

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

// holds fails unless file has this text and mode, and is alone in its directory.
func holds(t *testing.T, file, text string, mode fs.FileMode) {
	t.Helper()
	got, err := os.ReadFile(file)
	if err != nil || string(got) != text {
		t.Errorf("%s holds %q (%v), not %q", file, got, err, text)
	}
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode() != mode {
		t.Errorf("%s has mode %v, not %v", file, info.Mode(), mode)
	}
	if left, _ := os.ReadDir(filepath.Dir(file)); len(left) != 1 {
		t.Errorf("temporary files are left: %v", left)
	}
}

func TestWrite(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o077))
	file := filepath.Join(t.TempDir(), "a")
	if err := os.WriteFile(file, []byte("old"), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := Write(file, []byte("new"), 0o644); err != nil {
		t.Fatal(err)
	}
	holds(t, file, "new", 0o644) // not that of the old file, nor cut by the umask

	t.Setenv("TMPDIR", "/nowhere")
	wrong := errors.New("wrong")
	err := WriteFunc(file, 0o600, func(w io.Writer) error {
		_, _ = io.WriteString(w, "half")
		return wrong
	})
	if !errors.Is(err, wrong) {
		t.Errorf("got %v", err)
	}
	holds(t, file, "new", 0o644)
	if err := Write(filepath.Join(file, "b"), nil, 0o600); err == nil {
		t.Error("a file was made inside a file")
	}
}

func TestWritePrivate(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0))
	dir := filepath.Join(t.TempDir(), "a", "b")
	for _, text := range []string{"one", "two"} {
		if err := WritePrivate(filepath.Join(dir, "c"), []byte(text)); err != nil {
			t.Fatal(err)
		}
		holds(t, filepath.Join(dir, "c"), text, 0o600)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory is %v (%v)", info.Mode(), err)
	}
}

// One of many who create a file at once gets it, and the others learn that it is there.
func TestCreatePrivate(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a", "b")
	var made atomic.Int32
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			switch err := CreatePrivate(file, []byte("text")); {
			case err == nil:
				made.Add(1)
			case !errors.Is(err, fs.ErrExist):
				t.Error(err)
			}
		})
	}
	all.Wait()
	if made.Load() != 1 {
		t.Errorf("%d made the file", made.Load())
	}
	holds(t, file, "text", 0o600)
}
