package mptcp

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"heddle/identity"
	"heddle/internal/sysctl"
	"heddle/stripe"
)

// borrowing is what borrow needs of the options.
func borrowing(dir string) *Options { return &Options{SetPathManager: true, RunDir: dir} }

// Processes that dial at the same time do not take the setting from each other, and it ends as it was. Each has a run
// directory of its own, or shares one.
func TestBorrowersWaitForEachOther(t *testing.T) {
	t.Parallel()
	w, dir := newWorld(t), t.TempDir()
	before := w.pathManager()
	var all sync.WaitGroup
	for i := range 8 {
		own := dir
		if i%2 == 0 {
			own = t.TempDir()
		}
		all.Go(func() {
			w.client.Do(t, func() error {
				for range 8 { // all of them take less than the patience of each, also on a busy machine
					giveBack, err := borrowing(own).borrow(t.Context())
					if err != nil {
						return err
					}
					time.Sleep(time.Duration(rand.IntN(500)) * time.Microsecond)
					if now, err := sysctl.Get(managerFile); err != nil || now != userSpace {
						t.Errorf("as the socket is made it is %q, %v", now, err)
					}
					if err := errors.Join(giveBack(), giveBack()); err != nil {
						return err
					}
				}
				return nil
			})
		})
	}
	all.Wait()
	if after := w.pathManager(); after != before || strings.TrimSpace(after) != "0" {
		t.Errorf("net.mptcp.pm_type was %q and is %q", before, after)
	}
}

// Sessions that begin at the same time all come up.
func TestDialsAtOnce(t *testing.T) {
	t.Parallel()
	w, id := newWorld(t), fresh(t)
	l := w.listen(stripe.ListenOptions{Identity: id, Accept: func(identity.Key) error { return nil }})
	go func() {
		for {
			if _, err := l.Accept(); err != nil {
				return
			}
		}
	}()
	for range 5 {
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				c, err := w.dial(Options{Identity: fresh(t), Peer: id.Key()})
				if err != nil {
					t.Error(err)
					return
				}
				c.Abort("the test is over")
			})
		}
		all.Wait()
	}
}

// A crash in the moment leaves a journal: status names it, down takes it back, and so does the next who dials.
func TestCrashOfABorrower(t *testing.T) {
	t.Parallel()
	w, dir := newWorld(t), t.TempDir()
	crash := func() error {
		release, err := sysctl.Hold(t.Context(), managerFile)
		if err != nil {
			return err
		}
		defer release() // as the end of the process does
		_, err = change(dir)
		return err
	}
	w.client.Do(t, func() error {
		if lines, err := Left(dir); err != nil || len(lines) != 0 {
			t.Errorf("before: %q, %v", lines, err)
		}
		if err := crash(); err != nil {
			return err
		}
		if lines, err := Left(dir); err != nil || len(lines) != 1 || !strings.Contains(lines[0], "net.mptcp.pm_type=1 (it is 0)") {
			t.Errorf("left: %q, %v", lines, err)
		}
		if lines, err := Clean(dir); err != nil || len(lines) != 1 {
			t.Errorf("undone: %q, %v", lines, err)
		}
		if now, err := sysctl.Get(managerFile); err != nil || now != "0" {
			t.Errorf("it is %q, %v", now, err)
		}
		if err := crash(); err != nil {
			return err
		}
		giveBack, err := borrowing(dir).borrow(t.Context())
		if err != nil {
			return err
		}
		if now, err := sysctl.Get(managerFile); err != nil || now != userSpace {
			t.Errorf("after a crash it is borrowed as %q, %v", now, err)
		}
		return giveBack()
	})
	if now := strings.TrimSpace(w.pathManager()); now != "0" {
		t.Errorf("net.mptcp.pm_type is %s", now)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("left in the run directory: %v, %v", entries, err)
	}
}

// While somebody dials, status and down leave the setting to the dialling process.
func TestMomentIsNoCrash(t *testing.T) {
	t.Parallel()
	w, dir := newWorld(t), t.TempDir()
	giveBack := func() error { return nil }
	w.client.Do(t, func() (err error) { giveBack, err = borrowing(dir).borrow(context.Background()); return err })
	seen := make(chan []string, 1)
	go w.client.Do(t, func() error {
		lines, err := Left(dir)
		seen <- lines
		return err
	})
	time.Sleep(50 * time.Millisecond)
	w.client.Do(t, giveBack)
	if lines := <-seen; len(lines) != 0 {
		t.Errorf("called a crash: %q", lines)
	}
}

// A setting that is 1 for good is nobody's to give back.
func TestBorrowLeavesWhatIsSet(t *testing.T) {
	t.Parallel()
	w, dir := newWorld(t), t.TempDir()
	w.client.Do(t, func() error {
		if err := sysctl.Set(managerFile, userSpace); err != nil {
			return err
		}
		giveBack, err := borrowing(dir).borrow(t.Context())
		if err != nil {
			return err
		}
		return giveBack()
	})
	if now := strings.TrimSpace(w.pathManager()); now != userSpace {
		t.Errorf("net.mptcp.pm_type is %s", now)
	}
}
