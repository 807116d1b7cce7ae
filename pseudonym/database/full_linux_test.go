package database

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"heddle/internal/nstest"
	"heddle/pseudonym"
)

// With a full disk nobody registers, and the rest goes on. It needs no restart when there is room again.
func TestFullDisk(t *testing.T) {
	if !nstest.OwnMounts(t) {
		return
	}
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
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
