package netutil

import (
	"errors"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

func TestListenUnix(t *testing.T) {
	file := filepath.Join(t.TempDir(), "socket")
	l, err := ListenUnix(file)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o660 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if _, err := ListenUnix(file); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("a second one got it: %v", err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false) // as after a crash
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := ListenUnix(file)
	if err != nil {
		t.Fatalf("what a crash left: %v", err)
	}
	again.Close()
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ListenUnix(file); err == nil {
		t.Error("a file gave way")
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "precious" {
		t.Errorf("%q, %v", text, err)
	}
}

func TestGiveUnix(t *testing.T) {
	file := filepath.Join(t.TempDir(), "socket")
	l, err := ListenUnix(file)
	if err != nil {
		t.Fatal(err)
	}
	mine, err := user.LookupGroupId(strconv.Itoa(os.Getgid()))
	if err != nil {
		t.Skip("typed skip: this group has no name:", err)
	}
	if os.Getuid() == 0 {
		if err := os.Chown(file, -1, 7070); err != nil {
			t.Fatal(err)
		}
	}
	if err := GiveUnix(l, mine.Name); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(file)
	if err != nil || info.Sys().(*syscall.Stat_t).Gid != uint32(os.Getgid()) || info.Mode().Perm() != 0o660 {
		t.Errorf("%+v, %v", info, err)
	}
	if err := GiveUnix(l, "no-such-group"); err == nil || !strings.Contains(err.Error(), "no-such-group") {
		t.Errorf("a group that is not there: %v", err)
	}
	if c, err := l.Accept(); err == nil {
		c.Close()
		t.Error("it listens on")
	}
}
