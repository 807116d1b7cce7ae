package transfer

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"heddle/internal/polltest"
)

// content gives n bytes that a seed fixes.
func content(seed uint64, n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)}).Read(b)
	return b
}

// fill writes files below a new directory.
func fill(t *testing.T, files map[string][]byte) string {
	t.Helper()
	dir := t.TempDir()
	for name, data := range files {
		put(t, filepath.Join(dir, name), data)
	}
	return dir
}

func put(t *testing.T, file string, data []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

// tree gives all files below a directory.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(dir, func(file string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := os.ReadFile(file)
		name, _ := filepath.Rel(dir, file)
		found[name] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// outcome is what both sides said of a transfer.
type outcome struct {
	sent, received       Report
	sendErr, receivedErr error
}

// between sends files over a connection, which change may put something around.
func between(t *testing.T, files []File, send SendOptions, receive ReceiveOptions, change func(net.Conn) net.Conn) outcome {
	t.Helper()
	a, b := socketPair(t)
	if change != nil {
		a = change(a)
	}
	done := make(chan outcome, 1)
	go func() {
		var o outcome
		o.received, o.receivedErr = Receive(t.Context(), b, receive)
		b.Close()
		done <- o
	}()
	report, err := Send(t.Context(), a, files, send)
	a.Close()
	o := <-done
	o.sent, o.sendErr = report, err
	return o
}

// socketPair gives both ends of a TCP connection over loopback.
func socketPair(t *testing.T) (net.Conn, net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

func collect(t *testing.T, names ...string) []File {
	t.Helper()
	files, _, err := Collect(names)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func states(r Report) map[string]string {
	s := map[string]string{}
	for _, f := range r.Files {
		s[f.Name] = f.State
	}
	return s
}

func (o outcome) check(t *testing.T, want map[string]string) {
	t.Helper()
	if o.sendErr != nil || o.receivedErr != nil {
		t.Fatalf("sender: %v, receiver: %v", o.sendErr, o.receivedErr)
	}
	if got := states(o.sent); !maps.Equal(got, want) {
		t.Errorf("sender says %v, want %v\n%+v", got, want, o.sent)
	}
	if got := states(o.received); !maps.Equal(got, want) {
		t.Errorf("receiver says %v, want %v\n%+v", got, want, o.received)
	}
}

func TestFilesArriveWhole(t *testing.T) {
	files := map[string][]byte{"empty": {}, "small": []byte("hello"), "large": content(1, 3*maxData+17), "dir/a/b": content(2, 1000), "dir/c": content(3, maxData)}
	from, into := fill(t, files), t.TempDir()
	if err := os.Chmod(filepath.Join(from, "small"), 0o755); err != nil {
		t.Fatal(err)
	}
	old := time.Unix(1e9, 0)
	if err := os.Chtimes(filepath.Join(from, "large"), old, old); err != nil {
		t.Fatal(err)
	}
	offered := collect(t, filepath.Join(from, "empty"), filepath.Join(from, "small"), filepath.Join(from, "large"), filepath.Join(from, "dir"))
	var last Progress
	o := between(t, offered, SendOptions{Progress: func(p Progress) { last = p }}, ReceiveOptions{Into: into}, nil)
	want := map[string]string{}
	total := 0
	for name, data := range files {
		want[name] = StateSent
		total += len(data)
		if got, err := os.ReadFile(filepath.Join(into, name)); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%s: %d bytes arrived of %d, %v", name, len(got), len(data), err)
		}
	}
	o.check(t, want)
	if o.sent.Bytes != int64(total) || o.received.Bytes != int64(total) || last.AllDone != int64(total) || last.All != int64(total) {
		t.Errorf("%d bytes: sent %d, received %d, progress %+v", total, o.sent.Bytes, o.received.Bytes, last)
	}
	for _, f := range o.sent.Files {
		if sum := digest(sha256.Sum256(files[f.Name])); f.SHA256 != sum.String() {
			t.Errorf("%s: SHA-256 %s, want %s", f.Name, f.SHA256, sum)
		}
	}
	if info, _ := os.Stat(filepath.Join(into, "small")); info.Mode().Perm()&0o100 == 0 {
		t.Error("small is no longer executable")
	}
	if info, _ := os.Stat(filepath.Join(into, "large")); !info.ModTime().Equal(old) {
		t.Errorf("large was changed at %v, not %v", info.ModTime(), old)
	}
	if left := tree(t, into); len(left) != len(files) {
		t.Errorf("there are %v", slices.Sorted(maps.Keys(left)))
	}
}

func TestWhatIsThereIsNotSentAgain(t *testing.T) {
	from := fill(t, map[string][]byte{"same": []byte("same"), "other": []byte("mine"), "longer": []byte("longer than it was"), "new": []byte("new")})
	in := map[string][]byte{"same": []byte("same"), "other": []byte("your"), "longer": []byte("longer")}
	offered := collect(t, filepath.Join(from, "same"), filepath.Join(from, "other"), filepath.Join(from, "longer"), filepath.Join(from, "new"))

	into := fill(t, in)
	o := between(t, offered, SendOptions{}, ReceiveOptions{Into: into}, nil)
	o.check(t, map[string]string{"same": StateThere, "other": StateRefused, "longer": StateRefused, "new": StateSent})
	if got := tree(t, into); got["other"] != "your" || got["longer"] != "longer" || len(got) != 4 {
		t.Errorf("without leave to overwrite there is now %v", got)
	}
	if o.sent.Bytes != 3 || o.sent.Missing() != 2 {
		t.Errorf("%d bytes were sent, %d files are missing", o.sent.Bytes, o.sent.Missing())
	}

	into = fill(t, in)
	o = between(t, offered, SendOptions{}, ReceiveOptions{Into: into, Overwrite: true}, nil)
	o.check(t, map[string]string{"same": StateThere, "other": StateSent, "longer": StateSent, "new": StateSent})
	if got := tree(t, into); got["other"] != "mine" || got["longer"] != "longer than it was" || len(got) != 4 {
		t.Errorf("with leave to overwrite there is now %v", got)
	}
}

func TestDryRunChangesNothing(t *testing.T) {
	from, into := fill(t, map[string][]byte{"a": []byte("new"), "b": []byte("b")}), fill(t, map[string][]byte{"b": []byte("b")})
	o := between(t, collect(t, filepath.Join(from, "a"), filepath.Join(from, "b")), SendOptions{DryRun: true}, ReceiveOptions{Into: into}, nil)
	if o.sendErr != nil || o.receivedErr != nil {
		t.Fatal(o.sendErr, o.receivedErr)
	}
	if got := states(o.sent); got["a"] != StateWould || got["b"] != StateThere || o.sent.Bytes != 0 {
		t.Errorf("it says %v, and sent %d bytes", got, o.sent.Bytes)
	}
	if got := tree(t, into); len(got) != 1 {
		t.Errorf("there is now %v", got)
	}
}

// cut ends a connection after so many bytes were written.
type cut struct {
	net.Conn
	left int
}

func (c *cut) Write(b []byte) (int, error) {
	if c.left -= len(b); c.left < 0 {
		c.Close()
		return 0, net.ErrClosed
	}
	return c.Conn.Write(b)
}

func TestBrokenOffIsTakenUp(t *testing.T) {
	const size = 10 * maxData
	data := content(4, size)
	from, into := fill(t, map[string][]byte{"file": data}), t.TempDir()
	offered := collect(t, filepath.Join(from, "file"))
	o := between(t, offered, SendOptions{}, ReceiveOptions{Into: into}, func(c net.Conn) net.Conn { return &cut{c, size / 2} })
	if o.sendErr == nil || o.receivedErr == nil {
		t.Fatalf("it was cut, and says %v, %v", o.sendErr, o.receivedErr)
	}
	if f := o.received.Files; len(f) != 1 || f[0].State != StateFailed || !strings.Contains(f[0].Why, "file.part") {
		t.Errorf("the receiver says %+v", f)
	}
	part, err := os.ReadFile(filepath.Join(into, "file.part"))
	if err != nil || len(part) == 0 || !bytes.HasPrefix(data, part) {
		t.Fatalf("the part has %d bytes, %v", len(part), err)
	}
	o = between(t, offered, SendOptions{}, ReceiveOptions{Into: into}, nil)
	o.check(t, map[string]string{"file": StateResumed})
	if o.sent.Bytes != int64(size-len(part)) || o.sent.Files[0].Resumed != int64(len(part)) {
		t.Errorf("%d bytes were sent again of %d, resumed %d of %d", o.sent.Bytes, size, o.sent.Files[0].Resumed, len(part))
	}
	if got := tree(t, into); got["file"] != string(data) || len(got) != 1 {
		t.Errorf("there is now %v", slices.Sorted(maps.Keys(got)))
	}
}

func TestForeignPartIsNotTakenUp(t *testing.T) {
	from := fill(t, map[string][]byte{"file": []byte("what it should be")})
	for _, part := range []string{"what it is not", "longer than what it should be", "what it should be"} {
		into := fill(t, map[string][]byte{"file.part": []byte(part)})
		o := between(t, collect(t, filepath.Join(from, "file")), SendOptions{}, ReceiveOptions{Into: into}, nil)
		if got := tree(t, into); got["file"] != "what it should be" || len(got) != 1 {
			t.Errorf("after a part %q there is %v: %+v", part, got, o)
		}
	}
}

// spoil changes one byte that is written, far behind the beginning.
type spoil struct {
	net.Conn
	at, seen int
}

func (s *spoil) Write(b []byte) (int, error) {
	if i := s.at - s.seen; i >= 0 && i < len(b) {
		b = bytes.Clone(b)
		b[i] ^= 1
	}
	s.seen += len(b)
	return s.Conn.Write(b)
}

func TestWrongHashIsNoFile(t *testing.T) {
	from, into := fill(t, map[string][]byte{"file": content(5, 2*maxData)}), t.TempDir()
	o := between(t, collect(t, filepath.Join(from, "file")), SendOptions{}, ReceiveOptions{Into: into}, func(c net.Conn) net.Conn { return &spoil{Conn: c, at: maxData} })
	o.check(t, map[string]string{"file": StateFailed})
	if got := tree(t, into); len(got) != 0 {
		t.Errorf("there is now %v", slices.Sorted(maps.Keys(got)))
	}
}

func TestFileThatChangesIsNoFile(t *testing.T) {
	for name, change := range map[string]func(file string) error{
		"shorter": func(file string) error { return os.Truncate(file, 10) },
		"longer":  func(file string) error { return os.Truncate(file, 10*maxData) },
		"gone":    os.Remove,
	} {
		t.Run(name, func(t *testing.T) {
			from, into := fill(t, map[string][]byte{"file": content(6, 4*maxData)}), t.TempDir()
			offered := collect(t, filepath.Join(from, "file"))
			if err := change(offered[0].Path); err != nil {
				t.Fatal(err)
			}
			between(t, offered, SendOptions{}, ReceiveOptions{Into: into}, nil).check(t, map[string]string{"file": StateFailed})
			if _, err := os.Stat(filepath.Join(into, "file")); err == nil {
				t.Error("it has its name")
			}
		})
	}
}

func TestSecondTransferOfOneFileIsRefused(t *testing.T) {
	from, into := fill(t, map[string][]byte{"file": content(7, 100)}), t.TempDir()
	root, err := os.OpenRoot(into)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	first, err := (&store{root: root, parts: &Parts{}}).open("file", true)
	if err != nil {
		t.Fatal(err)
	}
	defer first.close()
	o := between(t, collect(t, filepath.Join(from, "file")), SendOptions{}, ReceiveOptions{Into: into}, nil)
	o.check(t, map[string]string{"file": StateRefused})
}

func TestLimits(t *testing.T) {
	from, into := fill(t, map[string][]byte{"a": content(8, 600), "b": content(9, 600), ".hidden": []byte("x")}), t.TempDir()
	offered := collect(t, filepath.Join(from, "a"), filepath.Join(from, "b"), filepath.Join(from, ".hidden"))
	between(t, offered, SendOptions{}, ReceiveOptions{Into: into, MaxBytes: 1000}, nil).check(t,
		map[string]string{"a": StateSent, "b": StateRefused, ".hidden": StateRefused})
	huge := []File{{Name: "huge", Path: offered[0].Path, Size: 1 << 60}}
	o := between(t, huge, SendOptions{}, ReceiveOptions{Into: into}, nil)
	o.check(t, map[string]string{"huge": StateRefused})
	if !strings.Contains(o.sent.Files[0].Why, "no room") {
		t.Errorf("why: %s", o.sent.Files[0].Why)
	}
	between(t, offered[2:], SendOptions{}, ReceiveOptions{Into: into, Hidden: true}, nil).check(t, map[string]string{".hidden": StateSent})
}

func TestManyFiles(t *testing.T) {
	files := map[string][]byte{}
	want := map[string]string{}
	for i := range 2*maxBatch + 3 {
		name := "d/" + strings.Repeat("x", i%7+1) + string(rune('a'+i%26)) + "-" + strings.Repeat("y", i/26+1)
		files[name], want[name] = content(uint64(i), i), StateSent
	}
	from, into := fill(t, files), t.TempDir()
	between(t, collect(t, filepath.Join(from, "d")), SendOptions{}, ReceiveOptions{Into: into}, nil).check(t, want)
}

// A receiver whose disk fails says so while the sender is still sending.
func TestReceiverThatGivesUpSaysWhy(t *testing.T) {
	a, b := socketPair(t)
	from := fill(t, map[string][]byte{"file": content(10, 100*maxData)})
	go func() {
		r := receiver{conn: b, in: reader{from: b}}
		var o offer
		_ = r.in.expect(kindOffer, &o)
		_ = write(b, kindAnswer, answer{Files: make([]answered, 1)})
		_ = r.giveUp(errors.New("it cannot be written: no space left on device"))
		b.Close()
	}()
	_, err := Send(t.Context(), a, collect(t, filepath.Join(from, "file")), SendOptions{})
	if stopped, ok := errors.AsType[*StoppedError](err); !ok || !strings.Contains(stopped.Why, "no space left") {
		t.Errorf("the sender says %v", err)
	}
}

func TestContextEndsATransfer(t *testing.T) {
	a, b := socketPair(t)
	ctx, cancel := context.WithCancel(t.Context())
	received := make(chan error, 1)
	go func() {
		_, err := Receive(ctx, b, ReceiveOptions{Into: t.TempDir()})
		received <- err
	}()
	end := func(Progress) { // in the middle of a file, which is not over before the context's end has closed the connection
		cancel()
		polltest.Await(t, "the connection is closed", func() bool { return a.SetDeadline(time.Time{}) != nil })
	}
	if _, err := Send(ctx, a, []File{{Name: "a", Path: "/dev/null", Size: 1}}, SendOptions{Progress: end}); !errors.Is(err, context.Canceled) {
		t.Errorf("the sender: %v", err)
	}
	if err := <-received; !errors.Is(err, context.Canceled) {
		t.Errorf("the receiver: %v", err)
	}
}

func TestCollect(t *testing.T) {
	dir := fill(t, map[string][]byte{"a": nil, "sub/a": nil, "x.part": nil})
	if err := os.Symlink("a", filepath.Join(dir, "sub", "link")); err != nil {
		t.Fatal(err)
	}
	files, skipped, err := Collect([]string{filepath.Join(dir, "a"), filepath.Join(dir, "sub") + "/"})
	if err != nil || len(files) != 2 || files[1].Name != "sub/a" || len(skipped) != 1 || !strings.Contains(skipped[0], "link") {
		t.Errorf("%+v, skipped %v, %v", files, skipped, err)
	}
	for want, names := range map[string][]string{
		"would be called a too": {filepath.Join(dir, "a"), filepath.Join(dir, "sub", "a")},
		"cannot be read":        {filepath.Join(dir, "absent")},
		"ends in .part":         {filepath.Join(dir, "x.part")},
		"neither a file":        {os.DevNull},
	} {
		if _, _, err := Collect(names); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %s", names, err, want)
		}
	}
}

func TestReceiveIntoNowhere(t *testing.T) {
	a, _ := socketPair(t)
	if _, err := Receive(t.Context(), a, ReceiveOptions{Into: filepath.Join(t.TempDir(), "absent")}); err == nil {
		t.Error("no error")
	}
}

func sumOf(text string) string { return digest(sha256.Sum256([]byte(text))).String() }
