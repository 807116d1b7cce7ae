package netutil

import (
	"errors"
	"net"
	"os"
	"path/filepath"
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
