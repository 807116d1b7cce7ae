package nstest

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"heddle/internal/filelock"
)

// turns is the directory of the locks that serialise all tests of this machine that emulate links. A test that waits for
// worlds holds queue, so that no test overtakes one that waits for [Alone].
const (
	turns  = "/run/heddle/tests"
	queue  = "queue"
	worlds = "worlds"
)

// held holds the turns of this process, by the name of the test without its subtests.
var held = struct {
	sync.Mutex
	by map[string]*turn
}{by: map[string]*turn{}}

type turn struct {
	alone  bool
	ready  sync.Once
	err    error
	worlds *os.File
	users  int
}

// Beside lets the test build a world at the same time as other tests, but not while a test is [Alone]. The test must not
// start parallel subtests: they wait for a slot of -parallel, and tests that wait for [Alone] may hold all slots meanwhile.
func Beside(t testing.TB) { t.Helper(); take(t, false) }

// Alone waits until no other test of this machine has a world, and blocks new ones until this test ends. A test that
// measures time, or fails if the emulated links are late, calls it before its first world.
func Alone(t testing.TB) { t.Helper(); take(t, true) }

func take(t testing.TB, alone bool) {
	t.Helper()
	name, _, _ := strings.Cut(t.Name(), "/")
	held.Lock()
	mine := held.by[name]
	if mine == nil {
		mine = &turn{alone: alone}
		held.by[name] = mine
	}
	mine.users++
	held.Unlock()
	t.Cleanup(func() {
		held.Lock()
		defer held.Unlock()
		if mine.users--; mine.users == 0 {
			delete(held.by, name)
			mine.worlds.Close()
		}
	})
	if alone && !mine.alone {
		t.Fatal("the test is not alone: it built a world before")
	}
	lock := filelock.Share
	if mine.alone {
		lock = filelock.Lock
	}
	mine.ready.Do(func() { mine.worlds, mine.err = wait(turns, lock) })
	if mine.err != nil {
		t.Fatal(mine.err)
	}
}

// wait waits for a turn, and returns the file to close at its end.
func wait(dir string, to func(file string) (*os.File, error)) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	first, err := filelock.Lock(filepath.Join(dir, queue))
	if err != nil {
		return nil, err
	}
	defer first.Close()
	return to(filepath.Join(dir, worlds))
}
