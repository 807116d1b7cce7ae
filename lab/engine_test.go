package lab

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"heddle/internal/polltest"
)

func TestEngineIsPrompt(t *testing.T) {
	in := needWorld(t, Pair())
	run(t, in.Host("a"), "ping", "-c", "3", "-i", "0.01", "-W", "60", "10.0.0.2")
	status, err := in.Link("link").Status()
	if err != nil || status.Lateness.Packets == 0 || status.AtoB.Delivered == 0 {
		t.Fatalf("%+v, %v", status, err)
	}
	if err := in.ResetLateness(); err != nil {
		t.Fatal(err)
	}
	links, late, err := in.Status()
	if err != nil || len(links) != 1 || links[0].AtoB.Delivered < status.AtoB.Delivered {
		t.Fatalf("after a reset of lateness only: %+v, %v", links, err)
	}
	// The kernel's own packets may have come meanwhile.
	more := links[0].AtoB.Delivered + links[0].BtoA.Delivered - status.AtoB.Delivered - status.BtoA.Delivered
	if late.Packets > more {
		t.Errorf("after a reset %+v, and %d packets were delivered since", late, more)
	}
}

// TestEngineDeathIsSaid kills the emulator: what follows says so, and the world still goes without a trace.
func TestEngineDeathIsSaid(t *testing.T) {
	in := needWorld(t, Pair())
	if err := in.engine.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := in.Status(); err == nil || !strings.Contains(err.Error(), "has ended") {
		t.Errorf("status: %v", err)
	}
	if err := in.Link("link").Cut(); err == nil || !strings.Contains(err.Error(), "has ended") {
		t.Errorf("cut: %v", err)
	}
	if err := in.Down(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("down: %v", err)
	}
	assertGone(t, in.Name(), Pair())
}

// TestEngineEndsWithItsOwner: devices of emulated links last as long as the engine, so nothing emulates for nobody.
func TestEngineEndsWithItsOwner(t *testing.T) {
	name := startBackground(t, "owner")
	in, err := Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if _, err := in.Host("a").device("link"); err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(in.State().Owner.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	polltest.Await(t, "the device goes with its owner", func() bool {
		_, err := in.Host("a").device("link")
		return err != nil
	})
}
