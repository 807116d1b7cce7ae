package tunnel

import (
	"net/netip"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func newResolverFile(t *testing.T, old *string) (*resolverFile, string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "resolv.conf")
	if old != nil {
		if err := os.WriteFile(file, []byte(*old), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	servers := []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")}
	header := "# heddle\n"
	c := &resolverFile{File: file, New: header + resolverText(servers, []string{"corp.example", "example.net"}), Old: old}
	return c, file
}

func inode(t *testing.T, file string) uint64 {
	t.Helper()
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t).Ino
}

func TestResolverFileComesBack(t *testing.T) {
	old := "nameserver 192.0.2.53\noptions edns0\n"
	c, file := newResolverFile(t, &old)
	before := inode(t, file)
	if err := c.Apply(); err != nil {
		t.Fatal(err)
	}
	want := "# heddle\nnameserver 10.0.0.1\nnameserver fd00::1\nsearch corp.example example.net\n"
	if got, _ := os.ReadFile(file); string(got) != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for range 2 {
		if err := c.Undo(); err != nil {
			t.Fatal(err)
		}
		if got, _ := os.ReadFile(file); string(got) != old {
			t.Errorf("got %q, want %q", got, old)
		}
	}
	if inode(t, file) != before {
		t.Error("the file was replaced, which a bind mount does not allow")
	}
}

func TestResolverFileAfterACrashInTheMiddle(t *testing.T) {
	old := "nameserver 192.0.2.53\n"
	for name, partial := range map[string]string{"empty": "", "begun to write": "# heddle\nnames", "begun to restore": "nameserver 1"} {
		c, file := newResolverFile(t, &old)
		if err := os.WriteFile(file, []byte(partial), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := c.Undo(); err != nil {
			t.Fatal(err)
		}
		if got, _ := os.ReadFile(file); string(got) != old {
			t.Errorf("%s: got %q, want %q", name, got, old)
		}
	}
}

func TestResolverFileOfSomebodyElse(t *testing.T) {
	old, theirs := "nameserver 192.0.2.53\n", "nameserver 203.0.113.1\n"
	c, file := newResolverFile(t, &old)
	if err := c.Apply(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(theirs), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := c.Undo(); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(file); string(got) != theirs {
		t.Errorf("got %q, want %q", got, theirs)
	}
}

func TestResolverFileThatWasNotThere(t *testing.T) {
	c, file := newResolverFile(t, nil)
	if err := c.Apply(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := c.Undo(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(file); !os.IsNotExist(err) {
			t.Errorf("the file is still there: %v", err)
		}
	}
}
