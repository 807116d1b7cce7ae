package database

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"heddle/internal/errhint"
	"heddle/pseudonym"
)

// filled makes a database with some pseudonyms, and returns their labels.
func filled(t *testing.T, file string) (labels []pseudonym.Label) {
	t.Helper()
	d, err := Open(t.Context(), file, sealOf(t, 1), quiet)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.AddTenant(t.Context(), Tenant{Site: "a.example", Created: now}); err != nil {
		t.Fatal(err)
	}
	for range 200 {
		p := sample("a.example", pseudonym.NewOwner())
		if err := d.Add(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		labels = append(labels, p.Label)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	return labels
}

// A damaged file is named, and stays as it is.
func TestDamagedDatabase(t *testing.T) {
	whole := filepath.Join(t.TempDir(), "pseudonyms.db")
	labels := filled(t, whole)
	content, err := os.ReadFile(whole)
	if err != nil {
		t.Fatal(err)
	}
	const page = 4096
	for name, damaged := range map[string][]byte{
		"whole":              content,
		"text":               []byte(strings.Repeat("this is no database\n", 1000)),
		"half":               content[:len(content)/2/page*page],
		"a page of zeros":    with(content, 2*page, make([]byte, page)),
		"pages of something": with(content, len(content)/2/page*page, bytes.Repeat([]byte{0xa5}, 10*page)),
	} {
		file := filepath.Join(t.TempDir(), "pseudonyms.db")
		if err := os.WriteFile(file, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		d, err := Open(t.Context(), file, sealOf(t, 1), quiet)
		if err == nil {
			err = d.Check(t.Context())
			if _, missing := d.Get(t.Context(), labels[0]); name == "whole" && missing != nil {
				t.Error(missing)
			}
			d.Close()
		}
		if name != "whole" && (!errors.Is(err, ErrDamaged) || !strings.Contains(errhint.Of(err), "backup")) || name == "whole" && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if now, err := os.ReadFile(file); err != nil || !bytes.Equal(now, damaged) {
			t.Errorf("%s: the file changed (%v)", name, err)
		}
	}
}

// with is a copy of content that has something else at a place.
func with(content []byte, at int, other []byte) []byte {
	all := bytes.Clone(content)
	copy(all[at:], other)
	return all
}

const fullDisk = "HEDDLE_TEST_FULL_DISK"

// On a full disk registrations fail, and all else goes on. Once there is room they work again.
func TestFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("a disk of its own needs root")
	}
	dir := os.Getenv(fullDisk)
	if dir == "" { // again, in a mount namespace of its own
		cmd := exec.Command(os.Args[0], "-test.run=^TestFullDisk$", "-test.v")
		cmd.Env = append(os.Environ(), fullDisk+"="+t.TempDir())
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=8m"); err != nil {
		t.Skipf("no disk of its own: %v", err)
	}
	file := filepath.Join(dir, "pseudonyms.db")
	labels := filled(t, file)
	d := open(t, file)
	if err := d.Check(t.Context()); err != nil { // it opens what SQLite keeps beside the file
		t.Fatal(err)
	}
	filler := filepath.Join(dir, "filler")
	if err := os.WriteFile(filler, make([]byte, 16<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	var failed error
	for n := 0; failed == nil; n++ {
		if n == 1000 {
			t.Fatal("the disk is not full")
		}
		failed = d.Add(t.Context(), sample("a.example", pseudonym.NewOwner()))
	}
	if text := fmt.Sprint(failed); !strings.Contains(text, "full") && !strings.Contains(text, "disk") {
		t.Errorf("the reason is %q", text)
	}
	for _, l := range labels {
		if _, err := d.Route(t.Context(), l, now); err != nil {
			t.Fatalf("a visit fails: %v", err)
		}
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if err := d.Add(t.Context(), sample("a.example", pseudonym.NewOwner())); err != nil {
		t.Errorf("with room again: %v", err)
	}
	if err := d.Check(t.Context()); err != nil {
		t.Error(err)
	}
}
