package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"heddle/internal/polltest"
)

// startBackground starts a world in a process of its own.
func startBackground(t *testing.T, suffix string) string {
	t.Helper()
	needSupport(t)
	name := fmt.Sprintf("test-%d-%s", os.Getpid(), suffix)
	if err := Start(t.Context(), serveArg, name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := TakeDown(name); err != nil && !errors.Is(err, ErrNotUp) {
			t.Error(err)
		}
	})
	return name
}

func TestBackgroundWorld(t *testing.T) {
	name := startBackground(t, "background")
	in, err := Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	run(t, in.Host("a"), "ping", "-c", "1", "-W", "60", "b.example")
	if err := in.Link("link").Cut(); !errors.Is(err, ErrNotEmulated) {
		t.Errorf("a link of another process is cut: %v", err)
	}
	err = Start(t.Context(), serveArg, name)
	if err == nil || !strings.Contains(err.Error(), "is up") {
		t.Errorf("a second start: %v", err)
	}
	polltest.Until(t, func() error {
		links, err := ReadLinkStatus(name)
		if err == nil && (len(links) != 1 || links[0].AtoB.Delivered == 0 || links[0].Lateness.Packets == 0) {
			err = fmt.Errorf("its owner writes down %+v", links)
		}
		return err
	})
	if err := TakeDown(name); err != nil {
		t.Fatal(err)
	}
	assertGone(t, name, Pair())
	if err := TakeDown(name); !errors.Is(err, ErrNotUp) {
		t.Errorf("taken down again: %v", err)
	}
}

// TestCrashIsCleaned kills the owner as a crash would, with a process inside, and then also loses the state file.
func TestCrashIsCleaned(t *testing.T) {
	for _, loseState := range []bool{false, true} {
		name := startBackground(t, fmt.Sprintf("crash-%v", loseState))
		in, err := Open(name)
		if err != nil {
			t.Fatal(err)
		}
		cmd := in.Host("a").Command(t.Context(), "sleep", "600")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		waitInside(t, in, 1)
		owner := in.State().Owner
		in.Close()
		if err := unix.Kill(owner.PID, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		polltest.Await(t, "the owner ends", func() bool { return !owner.Alive() })
		if _, err := Open(name); err == nil {
			t.Error("a world without an owner is opened")
		}
		if loseState {
			if err := os.Remove(filepath.Join(dir(name), "state.json")); err != nil {
				t.Fatal(err)
			}
		}
		if err := TakeDown(name); err != nil {
			t.Fatal(err)
		}
		assertGone(t, name, Pair())
		if err := cmd.Wait(); err == nil {
			t.Error("the process inside ended by itself")
		}
	}
}

func TestTakeDownLeavesALivingProgramItsWorld(t *testing.T) {
	in := needWorld(t, Pair())
	s := in.State()
	s.Owner = Process{PID: 1} // alive, and not us
	var err error
	if s.Owner.Start, err = startTime(1); err != nil {
		t.Fatal(err)
	}
	if err := s.write(); err != nil {
		t.Fatal(err)
	}
	if err := TakeDown(in.Name()); err == nil || !strings.Contains(err.Error(), "alive") {
		t.Errorf("the world of a living program: %v", err)
	}
	if _, err := os.Stat(in.Host("a").Namespace()); err != nil {
		t.Error(err)
	}
	list, err := List()
	if err != nil || !slices.ContainsFunc(list, func(s State) bool { return s.Name == in.Name() }) {
		t.Errorf("not listed: %v", err)
	}
}
