package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"heddle/cmd/heddle/internal/control"
	"heddle/identity"
	"heddle/stripe"
	"heddle/stripe/transfer"
)

// spoken is what a command has said so far.
type spoken struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *spoken) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(b)
}

func (s *spoken) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// device is a home of its own, with a key.
type device struct {
	t    *testing.T
	file string
	key  string
}

func newDevice(t *testing.T) device {
	t.Helper()
	file := filepath.Join(t.TempDir(), "identity.pem")
	id, _, err := identity.LoadOrCreate(file)
	if err != nil {
		t.Fatal(err)
	}
	return device{t, file, id.Key().String()}
}

// start runs a command as this device until the test ends, and gives what it says once a pattern is in it.
func (d device) start(until string, args ...string) (said *spoken, match []string) {
	d.t.Helper()
	return startCommand(d.t, until, append(args, "--identity", d.file)...)
}

func startCommand(t *testing.T, until string, args ...string) (said *spoken, match []string) {
	t.Helper()
	said = &spoken{}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan int, 1)
	go func() { done <- run(ctx, args, strings.NewReader(""), said, said) }()
	t.Cleanup(func() {
		cancel()
		if code := <-done; code != exitOK {
			t.Errorf("%v: exit code %d\n%s", args, code, said)
		}
	})
	pattern := regexp.MustCompile(until)
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if match = pattern.FindStringSubmatch(said.String()); match != nil {
			return said, match
		}
		select {
		case code := <-done:
			done <- code
			t.Fatalf("%v ended with %d:\n%s", args, code, said)
		default:
		}
	}
	t.Fatalf("%v does not say %q:\n%s", args, until, said)
	return nil, nil
}

// shortRunDir gives a directory for sockets, whose paths must be short.
func shortRunDir(t *testing.T) {
	t.Helper()
	dir, err := os.MkdirTemp("", "heddle")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	t.Setenv("HEDDLE_RUN_DIR", dir)
}

// twoWays are two paths that a test without namespaces has: both lead over loopback.
var twoWays = []string{"--via", "a=src:127.0.0.1", "--via", "b=if:lo"}

// listening gives the address where each connection is handled until the test ends.
func listening(t *testing.T, handle func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				handle(c)
			}()
		}
	}()
	return l.Addr().String()
}

func echoServer(t *testing.T) string {
	t.Helper()
	return listening(t, func(c net.Conn) { _, _ = io.Copy(c, c) })
}

// echoed sends text to an address and reads until the other side ends.
func echoed(t *testing.T, at, text string) string {
	t.Helper()
	c, err := net.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	_, _ = io.WriteString(c, text)
	_ = c.(*net.TCPConn).CloseWrite()
	got, err := io.ReadAll(c)
	if err != nil {
		t.Fatalf("after %d bytes: %v", len(got), err)
	}
	return string(got)
}

func TestStreamCarriesAProgram(t *testing.T) {
	shortRunDir(t)
	here, there := newDevice(t), newDevice(t)
	_, at := there.start(`echo: listening on (\S+) for 1 key(?s:.*)--key `+regexp.QuoteMeta(there.key), "stream", "serve", "--name", "echo", "--to", echoServer(t), "--listen", "127.0.0.1:0", "--allow", here.key)
	keylog := filepath.Join(t.TempDir(), "keys")
	args := append([]string{"stream", "dial", "echo", "--listen", "127.0.0.1:0", "--to", at[1], "--key", there.key, "--keylog", keylog}, twoWays...)
	said, up := here.start(`echo is up: listening on (\S+), to \S+ over 2 paths, strict`, args...)
	for _, want := range []string{"claim: each of 2 paths", "WARNING: the keys of all sessions are written to " + keylog} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, said)
		}
	}
	text := strings.Repeat("all of it comes back. ", 20_000)
	for range 3 {
		if got := echoed(t, up[1], text); got != text {
			t.Fatalf("%d bytes of %d came back", len(got), len(text))
		}
	}
	if keys, err := os.ReadFile(keylog); err != nil || !bytes.Contains(keys, []byte("CLIENT_TRAFFIC_SECRET_0 ")) {
		t.Errorf("the key log holds %q, %v", keys, err)
	}
	for name, role := range map[string]string{"dial-echo": "dial", "serve-echo": "serve"} {
		s, err := control.About[control.Stream](t.Context(), name, control.KindStream)
		if err != nil || s.Role != role || s.Service != "echo" {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
	}
	_, again := here.start(`dial-echo is already running \(pid \d+\): heddle status and heddle down know this one as (\S+)\n(?s:.*)echo is up: listening on (\S+),`, args...)
	if s, err := control.About[control.Stream](t.Context(), again[1], control.KindStream); err != nil || s.Listen != again[2] || s.Listen == up[1] {
		t.Errorf("%s: %+v, %v", again[1], s, err)
	}
}

// One file has both sides of a stream. The side that dials tries until the other one listens.
func TestStreamOfAFile(t *testing.T) {
	shortRunDir(t)
	d := newDevice(t)
	at := ownPort(t)
	file := filepath.Join(t.TempDir(), "heddle.toml")
	text := fmt.Sprintf(`identity = %q
via = ["a=src:127.0.0.1", "b=if:lo"]
[[serve]]
name = "echo"
to = %q
listen = %q
allow = [%q]
[[dial]]
name = "echo"
listen = "127.0.0.1:0"
to = %q
key = %q
shares = "xor:2"
`, d.file, echoServer(t), at, d.key, at, d.key)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	said, up := startCommand(t, `dial-echo: echo is up: listening on (\S+), to \S+ over 2 paths, xor:2 shares`, "run", file)
	if got := echoed(t, up[1], "there and back"); got != "there and back" {
		t.Errorf("%q came back\n%s", got, said)
	}
	for _, name := range []string{"serve-echo", "dial-echo"} {
		if !streamReady(name)(t.Context()) {
			t.Errorf("%s is not ready", name)
		}
	}
	// One that is dialled by hand, with a flag before its key.
	shortRunDir(t)
	_, up = startCommand(t, `echo is up: listening on (\S+), to \S+ over 2 paths, strict`, "stream", "dial", "--config", dialTable(t, text), "--shares", "none")
	if got := echoed(t, up[1], "by flags"); got != "by flags" {
		t.Errorf("%q came back", got)
	}
}

// ownPort gives an address to listen at later. Its port is none of those that the kernel hands out by itself.
func ownPort(t *testing.T) string {
	t.Helper()
	for range 100 {
		at := fmt.Sprintf("127.0.0.1:%d", 10_000+rand.IntN(20_000))
		if l, err := net.Listen("tcp", at); err == nil {
			l.Close()
			return at
		}
	}
	t.Fatal("no port is free")
	return ""
}

// dialTable is a file with the [[dial]] table of another alone.
func dialTable(t *testing.T, text string) string {
	t.Helper()
	_, dial, _ := strings.Cut(text, "[[dial]]")
	head, _, _ := strings.Cut(text, "[[serve]]")
	file := filepath.Join(t.TempDir(), "heddle.toml")
	if err := os.WriteFile(file, []byte(head+"[[dial]]"+dial), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestStreamLetsInWhomItKnows(t *testing.T) {
	shortRunDir(t)
	here, there, stranger := newDevice(t), newDevice(t), newDevice(t)
	_, at := there.start(`echo: listening on (\S+) for 1 key`, "stream", "serve", "--name", "echo", "--to", echoServer(t), "--listen", "127.0.0.1:0", "--allow", here.key)
	for name, c := range map[string]struct {
		who           device
		service, want string
		key           string
	}{
		"a stranger":       {stranger, "echo", "has to add --allow " + stranger.key, there.key},
		"a wrong server":   {here, "echo", "holds the key " + there.key, stranger.key},
		"a wrong service":  {here, "files", `no service is called "files" here`, there.key},
		"a wrong protocol": {here, "echo", "does not know what else was sent", there.key},
	} {
		command := []string{"stream", "dial", c.service, "--listen", "127.0.0.1:0"}
		if name == "a wrong protocol" {
			file := filepath.Join(t.TempDir(), "file")
			if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
			command = []string{"send", file, c.service, "--tries", "1"}
		}
		args := append(append(command, "--to", at[1], "--key", c.key, "--identity", c.who.file, "--patience", "30s"), twoWays...)
		var said spoken
		if code := run(t.Context(), args, strings.NewReader(""), &said, &said); code != exitFailure || !strings.Contains(said.String(), c.want) {
			t.Errorf("%s: exit code %d, want %q in\n%s", name, code, c.want, &said)
		}
	}
}

func TestStreamSOCKS(t *testing.T) {
	shortRunDir(t)
	here, there := newDevice(t), newDevice(t)
	_, at := there.start(`web: listening on (\S+) for 1 key: SOCKS5`, "stream", "serve", "--name", "web", "--socks", "--allow-to", "127.0.0.1/32", "--listen", "127.0.0.1:0", "--allow", here.key)
	args := append([]string{"stream", "dial", "web", "--socks", "127.0.0.1:0", "--to", at[1], "--key", there.key, "--shares", "xor:2"}, twoWays...)
	_, up := here.start(`web is up: listening on (\S+) \(SOCKS5\), to`, args...)
	target := net.TCPAddr{}
	if a, err := net.ResolveTCPAddr("tcp", echoServer(t)); err != nil {
		t.Fatal(err)
	} else {
		target = *a
	}
	request := "\x05\x01\x00\x05\x01\x00\x01\x7f\x00\x00\x01" + string([]byte{byte(target.Port >> 8), byte(target.Port)})
	if got := echoed(t, up[1], request+"hello"); got != "\x05\x00\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00hello" {
		t.Errorf("%q", got)
	}
}

func TestSendAndRecv(t *testing.T) {
	shortRunDir(t)
	here, there := newDevice(t), newDevice(t)
	from, into := t.TempDir(), t.TempDir()
	data := bytes.Repeat([]byte("0123456789abcdef"), 50_000)
	for _, name := range []string{"a", "dir/b"} {
		file := filepath.Join(from, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	received, at := there.start(`files: listening on (\S+) for 1 key: files into`, "recv", "--into", into, "--listen", "127.0.0.1:0", "--allow", here.key)
	send := func(more ...string) (int, transfer.Report, string) {
		args := append([]string{"send", filepath.Join(from, "a"), filepath.Join(from, "dir"), "files", "--to", at[1], "--key", there.key, "--identity", here.file, "--json"}, twoWays...)
		var out, talk spoken
		code := run(t.Context(), append(args, more...), strings.NewReader(""), &out, &talk)
		var answer sendAnswer
		if err := json.Unmarshal([]byte(out.String()), &answer); err != nil {
			t.Fatalf("%v\n%s%s", err, &out, &talk)
		}
		return code, answer.Report, talk.String()
	}
	if code, report, _ := send("--dry-run"); code != exitOK || len(report.Files) != 2 || report.Files[0].State != transfer.StateWould {
		t.Errorf("a dry run: exit code %d, %+v", code, report)
	}
	code, report, talk := send()
	if code != exitOK || report.Missing() != 0 || report.Bytes != int64(2*len(data)) || !strings.Contains(talk, "claim: ") {
		t.Errorf("exit code %d, %+v\n%s", code, report, talk)
	}
	for _, name := range []string{"a", "dir/b"} {
		if got, err := os.ReadFile(filepath.Join(into, name)); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
	if code, report, _ := send(); code != exitOK || report.Bytes != 0 || report.Files[0].State != transfer.StateThere {
		t.Errorf("again: exit code %d, %+v", code, report)
	}
	if err := os.WriteFile(filepath.Join(into, "a"), []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	if code, report, talk := send(); code != exitFailure || report.Missing() != 1 || !strings.Contains(talk, "1 of 2 files did not arrive") {
		t.Errorf("with another file there: exit code %d, %+v\n%s", code, report, talk)
	}
	for deadline := time.Now().Add(20 * time.Second); !strings.Contains(received.String(), "refused  a"); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the receiver says\n%s", received)
		}
	}
}

func TestProgress(t *testing.T) {
	now := transfer.Progress{File: "a.iso", Done: 5e8, Size: 1e9, AllDone: 5e8, All: 1e9}
	s := stripe.Status{State: "stopped", Why: "1 of 3 paths is down", Paths: []stripe.PathStatus{
		{Name: "tokyo", State: "up", RTT: 75 * time.Millisecond, Up: stripe.Count{Bytes: 25e7, Share: 0.5}},
		{Name: "a", State: "down", Why: "it does not answer", Up: stripe.Count{Bytes: 25e7, Share: 0.5}},
	}}
	want := "[##########..........] 50% of 1.0GB, 25.0MB/s, 20s left: a.iso\n" +
		"  tokyo  up          250MB   50%  rtt 75ms\n" +
		"  a      down        250MB   50%  rtt -  it does not answer\n" +
		"  stopped: 1 of 3 paths is down\n"
	if got := barLine(now, 25e6, 100) + "\n" + pathLines(s, 100); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if got := progressLine(now, 25e6) + "; " + pathsLine(s); got != "50% of 1.0GB, 25.0MB/s, 20s left: a.iso; tokyo 50%, a 50% (down: it does not answer)" {
		t.Errorf("got %s", got)
	}
	for line := range strings.Lines(barLine(now, 25e6, 40) + "\n" + pathLines(s, 40)) {
		if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > 39 {
			t.Errorf("a line of %d columns on a terminal of 40: %s", n, line)
		}
	}
	empty := transfer.Progress{File: "empty"}
	if got := barLine(empty, 0, 0); got != "[####################] 100% of 0B, 0B/s: empty" {
		t.Errorf("got %s", got)
	}
}

func TestSharedObservers(t *testing.T) {
	s := stripe.Status{Paths: []stripe.PathStatus{{Name: "a", Observer: "if:home"}, {Name: "b", Observer: "if:lte"}, {Name: "c", Observer: "if:home"}, {Name: "d"}, {Name: "e"}}}
	if got := sharedObservers(s); len(got) != 1 || got[0] != "the network at if:home sees a and c, and has what they carry together" {
		t.Errorf("%q", got)
	}
}

// A progress that is no terminal's holds no escape sequence.
func TestProgressWithoutATerminal(t *testing.T) {
	var out spoken
	p := newProgress(&out, func() stripe.Status {
		return stripe.Status{Paths: []stripe.PathStatus{{Name: "a\x1b[2J", State: "up"}}}
	}, false)
	p.update(transfer.Progress{File: "f", AllDone: 1, All: 2})
	p.draw()
	p.end()
	if text := out.String(); strings.Contains(text, "\x1b") || !strings.HasPrefix(text, "50% of 2B") || strings.Count(text, "\n") != 1 {
		t.Errorf("%q", text)
	}
}
