package control

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"heddle/proxy/connectudp"
	"heddle/split"
)

// runDir gives each test a directory of its own, with a path short enough for a socket.
func runDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "heddle-test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	t.Setenv("HEDDLE_RUN_DIR", dir)
	return dir
}

// serve starts a server as a heddle does: what stops it ends its context, and closing the server comes last.
func serve(t *testing.T, name string, sessions []split.Status) (ended <-chan error) {
	t.Helper()
	server, err := Listen(name)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		err := server.Serve(ctx, func() Status { return Status{Sessions: sessions} }, cancel)
		done <- errors.Join(err, server.Close())
	}()
	t.Cleanup(cancel)
	return done
}

func TestStatusAndStop(t *testing.T) {
	dir := runDir(t)
	want := []split.Status{{Session: "office", State: "running", Paths: []split.PathStatus{{Name: "home"}}}}
	ended := serve(t, "office", want)

	names, err := Names()
	if err != nil || len(names) != 1 || names[0] != "office" {
		t.Fatalf("Names() = %v, %v; want [office]", names, err)
	}
	got, err := Ask(t.Context(), "office")
	if err != nil || len(got.Sessions) != 1 || got.Sessions[0].Session != "office" || got.Sessions[0].Paths[0].Name != "home" || got.Proxy != nil {
		t.Fatalf("Ask() = %+v, %v", got, err)
	}
	info, err := os.Stat(filepath.Join(dir, "office.sock"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("socket is %v, %v; want mode 0600", info.Mode(), err)
	}
	if err := Stop(t.Context(), "office"); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("the server ended with %v", err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	var gone *NotRunningError
	if err := Stop(t.Context(), "office"); !errors.As(err, &gone) {
		t.Errorf("a second Stop gives %v; want a NotRunningError", err)
	}
}

func TestStatusOfAProxy(t *testing.T) {
	runDir(t)
	server, err := Listen("masque-443")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	proxy := Status{Proxy: &connectudp.Status{Listen: "[::]:443", Open: map[string]int{"ann": 2}}}
	go func() { done <- server.Serve(ctx, func() Status { return proxy }, cancel) }()
	if s, err := Ask(t.Context(), "masque-443"); err != nil || len(s.Sessions) != 0 || s.Proxy.Listen != "[::]:443" || s.Proxy.Open["ann"] != 2 {
		t.Errorf("Ask() = %+v, %v", s, err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	var gone *NotRunningError
	if _, err := Ask(t.Context(), "absent"); !errors.As(err, &gone) {
		t.Errorf("Ask() of an absent one: %v", err)
	}
}

func TestSecondListenBesideARunningOne(t *testing.T) {
	runDir(t)
	first, err := Listen("office")
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	_, err = Listen("office")
	var running *RunningError
	if !errors.As(err, &running) || running.PID != os.Getpid() {
		t.Fatalf("a second Listen gives %v; want a RunningError with pid %d", err, os.Getpid())
	}
	if !strings.Contains(running.HintText(), "heddle down office") {
		t.Errorf("hint: %s", running.HintText())
	}
	other, err := Listen("other")
	if err != nil {
		t.Fatalf("another name beside it: %v", err)
	}
	other.Close()
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := Listen("office")
	if err != nil {
		t.Fatalf("after Close: %v", err)
	}
	again.Close()
}

// The test binary plays the heddle that crashes: it claims the name and is killed with SIGKILL.
func TestMain(m *testing.M) {
	if name := os.Getenv("CONTROL_TEST_HOLD"); name != "" {
		server, err := Listen(name)
		if err != nil {
			os.Stdout.WriteString("failed: " + err.Error() + "\n")
			os.Exit(1)
		}
		os.Stdout.WriteString("held\n")
		_ = server.Serve(context.Background(), func() Status { return Status{} }, func() {})
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestStaleAfterACrash(t *testing.T) {
	dir := runDir(t)
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), "CONTROL_TEST_HOLD=office")
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	said := make([]byte, 256)
	n, _ := out.Read(said)
	if string(said[:n]) != "held\n" {
		t.Fatalf("child said %q", said[:n])
	}
	var running *RunningError
	if _, err := Listen("office"); !errors.As(err, &running) || running.PID != child.Process.Pid {
		t.Errorf("beside the child: %v; want a RunningError with pid %d", err, child.Process.Pid)
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait()

	if _, err := os.Stat(filepath.Join(dir, "office.sock")); err != nil {
		t.Fatalf("the crash left no socket, so this test shows nothing: %v", err)
	}
	if names, err := Names(); err != nil || len(names) != 0 {
		t.Errorf("Names() after the crash = %v, %v; want none", names, err)
	}
	var gone *NotRunningError
	if _, err := Ask(t.Context(), "office"); !errors.As(err, &gone) {
		t.Errorf("Ask() after the crash gives %v; want a NotRunningError", err)
	}
	server, err := Listen("office")
	if err != nil {
		t.Fatalf("Listen after the crash: %v", err)
	}
	server.Close()
}

func TestNames(t *testing.T) {
	runDir(t)
	for _, name := range []string{"", ".", "..", "../office", "a/b", "a\x00b", ".hidden", "-flag", strings.Repeat("a", 65)} {
		if server, err := Listen(name); err == nil {
			server.Close()
			t.Errorf("Listen(%q) was accepted", name)
		}
		if _, err := Ask(t.Context(), name); err == nil {
			t.Errorf("Ask(%q) was accepted", name)
		}
		if err := Stop(t.Context(), name); err == nil {
			t.Errorf("Stop(%q) was accepted", name)
		}
	}
}

func TestDirOfOthersIsRefused(t *testing.T) {
	dir := runDir(t)
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen("office"); err == nil || !strings.Contains(err.Error(), "others can write") {
		t.Errorf("Listen in a directory of mode 0777 gives %v", err)
	}
	if _, err := Names(); err == nil {
		t.Error("Names in a directory of mode 0777 gives no error")
	}
}

func TestLinkIsNoDirectory(t *testing.T) {
	dir := runDir(t)
	link := filepath.Join(dir, "link")
	if err := os.Symlink(t.TempDir(), link); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HEDDLE_RUN_DIR", link)
	if _, err := Listen("office"); err == nil {
		t.Error("a link in place of the directory was accepted")
	}
}

func TestLongDirIsRefused(t *testing.T) {
	t.Setenv("HEDDLE_RUN_DIR", filepath.Join(runDir(t), strings.Repeat("long", 30)))
	if _, err := Listen("office"); err == nil || !strings.Contains(err.Error(), "too long") {
		t.Errorf("Listen gives %v; want an error about the length", err)
	}
}

func TestHungHeddle(t *testing.T) {
	dir := runDir(t)
	server, err := Listen("office")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	accepted := make(chan net.Conn, 1)
	go func() {
		conn, err := server.listener.Accept()
		if err == nil {
			accepted <- conn
		}
	}()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		(<-accepted).Close()
		cancel()
	}()
	if _, err := Ask(ctx, "office"); err == nil || !strings.Contains(err.Error(), "does not answer") {
		t.Errorf("Ask of a heddle in %s that hangs up: %v", dir, err)
	}
}
