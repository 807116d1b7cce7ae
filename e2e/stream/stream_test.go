package stream

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"heddle/internal/polltest"
)

// randomFile makes a file that no cipher or compression makes shorter.
func randomFile(t *testing.T, size int) (name string, data []byte) {
	t.Helper()
	data = make([]byte, size)
	_, _ = rand.Read(data)
	name = filepath.Join(t.TempDir(), "data")
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return name, data
}

func sameFile(t *testing.T, name string, want []byte) {
	t.Helper()
	if got, err := os.ReadFile(name); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes arrived of %d, %v", len(got), len(want), err)
	}
}

// scp through sshd, neither of which knows of it: each observer gets a third, up and down.
func TestSCPOverThreeNodes(t *testing.T) {
	w := newWorld(t)
	s := w.SSH("server")
	served := w.StreamServer("server", streamAt, "stream", "serve", "--name", "ssh", "--to", "127.0.0.1:22")
	dialled := w.Start("client", "is up", w.to("stream", "dial", "ssh", "--listen", "127.0.0.1:2222", "--schedule", "strict")...)
	const size = 3_000_000
	file, data := randomFile(t, size)
	into := filepath.Join(t.TempDir(), "copied")
	stop := w.watch()
	if out, err := w.tool("client", "scp", "-q", "-F", s.Config, "-P", "2222", file, "127.0.0.1:"+into); err != nil {
		t.Fatalf("scp: %v\n%s\n%s\n%s\n%s", err, out, dialled.Log(), served.Log(), s.Log())
	}
	sameFile(t, into, data)
	back := filepath.Join(t.TempDir(), "back")
	if out, err := w.tool("client", "scp", "-q", "-F", s.Config, "-P", "2222", "127.0.0.1:"+into, back); err != nil {
		t.Fatalf("scp: %v\n%s", err, out)
	}
	sameFile(t, back, data)
	for path, s := range stop() {
		// A third, and what TLS, ssh and the handshakes of two sessions add.
		for way, n := range map[string]int{"up": s.up, "down": s.down} {
			if part := float64(n) / size; part < 0.32 || part > 0.37 {
				t.Errorf("path %s saw %.3f of the bytes %s, where a third is meant", path, part, way)
			}
		}
	}
	if text := w.Run("client", "status"); !strings.Contains(text, "dials ssh at 192.0.2.1:4470") {
		t.Errorf("heddle status says\n%s", text)
	}
}

// curl through SOCKS5, whose other side is the server.
func TestCurlThroughSOCKS(t *testing.T) {
	w := newWorld(t)
	_, data := randomFile(t, 300_000)
	var l net.Listener
	if err := w.Host("server").Do(func() (err error) {
		l, err = net.Listen("tcp", "127.0.0.1:8080")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	web := &http.Server{Handler: http.HandlerFunc(func(answer http.ResponseWriter, _ *http.Request) { _, _ = answer.Write(data) })}
	defer web.Close()
	go func() { _ = web.Serve(l) }()
	w.StreamServer("server", streamAt, "stream", "serve", "--name", "web", "--socks", "--allow-to", "127.0.0.1/32:8080")
	w.Start("client", "is up", w.to("stream", "dial", "web", "--socks", "127.0.0.1:1080", "--shares", "2of3")...)
	file := filepath.Join(t.TempDir(), "page")
	if out, err := w.tool("client", "curl", "-sS", "--max-time", "60", "-o", file, "-x", "socks5h://127.0.0.1:1080", "http://localhost:8080/"); err != nil {
		t.Fatalf("curl: %v\n%s", err, out)
	}
	sameFile(t, file, data)
	if out, err := w.tool("client", "curl", "-sS", "--max-time", "30", "-x", "socks5h://127.0.0.1:1080", "http://127.0.0.1:22/"); err == nil {
		t.Errorf("what is not allowed was reached:\n%s", out)
	}
}

// answer is what `heddle send --json` prints.
type answer struct {
	Files []struct {
		Name, State, Why string
		Size, Resumed    int64
	}
	Bytes   int64
	Session struct {
		Paths []struct {
			Name, State, Why string
			Up               struct{ Bytes, Again uint64 }
		}
	}
}

// during sends a file by `heddle send`, and does something once the receiver has a third of it.
func (w *world) during(size int, into string, do func(), args ...string) (a answer, talk string, err error) {
	w.t.Helper()
	w.slowly()
	file, data := randomFile(w.t, size)
	done := make(chan struct{})
	var out string
	go func() {
		defer close(done)
		out, talk, err = w.Try("client", "", w.to(slices.Concat([]string{"send", file, "files", "--json"}, args)...)...)
	}()
	polltest.Await(w.t, "a third arrived", func() bool {
		info, err := os.Stat(filepath.Join(into, "data.part"))
		return err == nil && info.Size() > int64(size)/3
	})
	do()
	<-done
	if json.Unmarshal([]byte(out), &a) != nil {
		w.t.Fatalf("heddle send printed %q, %v\n%s", out, err, talk)
	}
	if err == nil {
		sameFile(w.t, filepath.Join(into, "data"), data)
	}
	return a, talk, err
}

// A receiver that is started again goes on where it was, and so does the sender by itself.
func TestReceiverIsStartedAgain(t *testing.T) {
	w := newWorld(t)
	into := t.TempDir()
	recv := []string{"recv", "--into", into}
	first := w.StreamServer("server", streamAt, recv...)
	a, talk, err := w.during(6_000_000, into, func() {
		first.Stop()
		w.StreamServer("server", streamAt, recv...)
	})
	if err != nil || len(a.Files) != 1 || a.Files[0].State != "resumed" || a.Files[0].Resumed < 2_000_000 {
		t.Fatalf("%v, %+v\n%s", err, a, talk)
	}
	if !strings.Contains(talk, "broken off") {
		t.Errorf("it does not say that it was broken off:\n%s", talk)
	}
}

// With 2of3 a node's death is no pause, and nothing that it would have carried goes by another's network.
func TestNodeDiesWithShares(t *testing.T) {
	w := newWorld(t)
	into := t.TempDir()
	w.StreamServer("server", streamAt, "recv", "--into", into)
	stop := w.watch()
	const size = 6_000_000
	a, talk, err := w.during(size, into, w.node["n3"].Kill, "--shares", "2of3")
	if err != nil || len(a.Files) != 1 || a.Files[0].State != "sent" {
		t.Fatalf("%v, %+v\n%s", err, a, talk)
	}
	saw := stop()
	for _, path := range []string{"a", "b"} {
		// One share of two that it takes: a half, and what is added. More would be another's share. On a busy machine a path may lag
		// behind while two others live, and what these have brought is not sent there any more.
		if part := float64(saw[path].up) / size; part < 0.3 || part > 0.54 {
			t.Errorf("path %s saw %.3f of the bytes, where one share is a half", path, part)
		}
	}
	if part := float64(saw["c"].up) / size; part > 0.45 {
		t.Errorf("path c saw %.3f of the bytes, and was to die after a third of the file", part)
	}
	for _, p := range a.Session.Paths {
		if p.Up.Again > 0 && p.Name != "c" {
			t.Errorf("path %s was sent %d segments again", p.Name, p.Up.Again)
		}
	}
	if !strings.Contains(talk, "path=c") {
		t.Errorf("nothing names the path that died:\n%s", talk)
	}
}

// Without shares what the dead node had to carry goes nowhere else: the transfer stops, says why, and goes on later.
func TestNodeDiesWithoutShares(t *testing.T) {
	w := newWorld(t)
	into := t.TempDir()
	w.StreamServer("server", streamAt, "recv", "--into", into)
	const size = 6_000_000
	stop := w.watch()
	a, talk, err := w.during(size, into, w.node["n3"].Kill, "--tries", "1", "--patience", "5s")
	if err == nil || !strings.Contains(talk, "c (") {
		t.Fatalf("it ended with %v, %+v\n%s", err, a, talk)
	}
	for path, s := range stop() {
		// A path may run ahead of the dead one, but only with its own third.
		if part := float64(s.up) / size; part > 0.345 {
			t.Errorf("path %s saw %.3f of the file, which is more than its third", path, part)
		}
	}
	if _, err := os.Stat(filepath.Join(into, "data")); err == nil {
		t.Error("the file has its name")
	}
	info, err := os.Stat(filepath.Join(into, "data.part"))
	if err != nil || info.Size() < size/3 || info.Size() == size {
		t.Fatalf("the part: %+v, %v", info, err)
	}
}

// While one of the paths asked for is away, a program's bytes stay at home: no other path carries any, and the program's
// connection ends.
func TestNothingLeavesBeforeAllPathsAreUp(t *testing.T) {
	w := newWorld(t)
	w.StreamServer("server", streamAt, "stream", "serve", "--name", "sink", "--to", "127.0.0.1:9")
	dialled := w.Start("client", "is up", w.to("stream", "dial", "sink", "--listen", "127.0.0.1:2222", "--warm", "0", "--patience", "4s")...)
	connect := func(say []byte) {
		t.Helper()
		var c net.Conn
		if err := w.Host("client").Do(func() (err error) {
			c, err = net.Dial("tcp", "127.0.0.1:2222")
			return err
		}); errors.Is(err, syscall.ECONNRESET) {
			return // it ended before Dial looked
		} else if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		go func() { _, _ = c.Write(say) }()
		_ = c.SetReadDeadline(time.Now().Add(40 * time.Second))
		if n, err := c.Read(make([]byte, 1)); n > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the connection does not end: %d bytes, %v", n, err)
		}
	}
	connect(nil) // takes the session that was dialled at the start; nobody listens behind it
	w.node["n3"].Kill()
	stop := w.watch()
	connect(make([]byte, 1<<20))
	for path, s := range stop() {
		// Handshakes of two paths, tried for four seconds.
		if s.up > 100_000 {
			t.Errorf("path %s carried %d bytes", path, s.up)
		}
	}
	// The program's connection is reset before the reason is written.
	if err := dialled.AwaitLog(t.Context(), "c ("); err != nil {
		t.Errorf("the path that is away is not named: %v", err)
	}
}
