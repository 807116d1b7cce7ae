package database

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"heddle/pseudonym"
)

// inSmallDisk runs a test again in a process of its own, with a disk of one megabyte, whose directory that process gets.
func inSmallDisk(t *testing.T) (dir string) {
	t.Helper()
	const inside = "HEDDLE_TEST_SMALL_DISK"
	if dir = os.Getenv(inside); dir != "" {
		if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	if os.Getuid() != 0 {
		t.Skip("typed skip: only root can mount a small disk")
	}
	again := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	again.Env = append(os.Environ(), inside+"="+t.TempDir())
	again.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	if out, err := again.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("%v\n%s", err, out)
	}
	return ""
}

// With a full disk nobody registers, and the rest goes on. It needs no restart when there is room again.
func TestFullDisk(t *testing.T) {
	dir := inSmallDisk(t)
	if dir == "" {
		return
	}
	d := open(t, filepath.Join(dir, "pseudonyms.db"))
	if err := d.AddTenant(t.Context(), Tenant{Site: "a.example", Created: now}); err != nil {
		t.Fatal(err)
	}
	p := sample("a.example", pseudonym.NewOwner())
	if err := d.Add(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 2<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	var last pseudonym.Label
	var err error
	for range 1000 {
		next := sample("a.example", pseudonym.NewOwner())
		if err = d.Add(t.Context(), next); err != nil {
			break
		}
		last = next.Label
	}
	if err == nil || !strings.Contains(err.Error(), "full") {
		t.Errorf("on a full disk: %v", err)
	}
	for _, l := range []pseudonym.Label{p.Label, last} {
		if l == "" {
			continue
		}
		if _, err := d.Get(t.Context(), l); err != nil {
			t.Errorf("nobody can read: %v", err)
		}
		if _, err := d.Route(t.Context(), l, now); err != nil {
			t.Errorf("nobody can visit: %v", err)
		}
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(d.Add(t.Context(), sample("a.example", pseudonym.NewOwner())), d.Check(t.Context())); err != nil {
		t.Errorf("with room again: %v", err)
	}
}
