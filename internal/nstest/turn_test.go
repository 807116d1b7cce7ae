package nstest

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"heddle/internal/filelock"
)

// busy reports whether somebody holds a lock that this kind would have to wait for.
func busy(t *testing.T, file string, how int) bool {
	t.Helper()
	f, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	err = unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
	if err != nil && !errors.Is(err, unix.EWOULDBLOCK) {
		t.Fatal(err)
	}
	return err != nil
}

func TestATestAloneHasNoneBesideIt(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root builds worlds")
	}
	Alone(t)
	t.Run("subtest", func(t *testing.T) { Beside(t) }) // a test does not wait for itself
	if !busy(t, filepath.Join(turns, worlds), unix.LOCK_SH) {
		t.Error("another test may build a world")
	}
}

func TestATestThatWaitsToBeAloneIsNotOvertaken(t *testing.T) {
	dir := t.TempDir()
	first, err := wait(dir, filelock.Share)
	if err != nil {
		t.Fatal(err)
	}
	order := make(chan string, 2)
	next := func(what string, lock func(string) (*os.File, error)) {
		f, err := wait(dir, lock)
		if err != nil {
			t.Error(err)
		}
		order <- what
		f.Close()
	}
	go next("alone", filelock.Lock)
	for !busy(t, filepath.Join(dir, queue), unix.LOCK_EX) {
		time.Sleep(time.Millisecond)
	}
	go next("beside", filelock.Share)
	select {
	case what := <-order:
		t.Errorf("%s did not wait", what)
	case <-time.After(50 * time.Millisecond):
	}
	first.Close()
	if got := <-order; got != "alone" {
		t.Errorf("%s came first", got)
	}
	<-order
}
