package transfer

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestNames(t *testing.T) {
	for name, good := range map[string]bool{
		"a": true, "a/b": true, "a b.txt": true, "über": true, "a..b": true, "...": true,
		"": false, ".": false, "..": false, "../a": false, "a/../b": false, "/etc/passwd": false, "a//b": false, "a/": false, "./a": false,
		"a\x00b": false, "a\nb": false, "a\\b": false, "\x1b[2J": false, "a\u202eb": false, "\xff": false, "a.part": false,
		strings.Repeat("x", 250): true, strings.Repeat("x", 251): false, strings.Repeat("x/", 600) + "x": false,
	} {
		if why := CheckName(name, true); (why == "") != good {
			t.Errorf("%q: %q", name, why)
		}
	}
	for _, name := range []string{".bashrc", "a/.ssh/b"} {
		if CheckName(name, false) == "" || CheckName(name, true) != "" {
			t.Errorf("%q: hidden names are told apart wrongly", name)
		}
	}
}

// duplex is a connection whose other side has said all it will.
type duplex struct {
	net.Conn // nil: what is not below is not called
	io.Reader
	said bytes.Buffer
}

func (d *duplex) Read(b []byte) (int, error)      { return d.Reader.Read(b) }
func (d *duplex) Write(b []byte) (int, error)     { return d.said.Write(b) }
func (d *duplex) Close() error                    { return nil }
func (d *duplex) SetDeadline(time.Time) error     { return nil }
func (d *duplex) SetReadDeadline(time.Time) error { return nil }

// said builds the bytes of frames: a message for its kind, or raw bytes.
func said(t testing.TB, parts ...any) []byte {
	var b bytes.Buffer
	for _, p := range parts {
		var err error
		switch p := p.(type) {
		case offer:
			err = write(&b, kindOffer, p)
		case proof:
			err = write(&b, kindProof, p)
		case begin:
			err = write(&b, kindBegin, p)
		case ending:
			err = write(&b, kindEnding, p)
		case []byte:
			err = writeFrame(&b, kindData, append(make([]byte, headerBytes), p...))
		default:
			t.Fatalf("no frame: %T", p)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

func TestNothingEscapesByLinks(t *testing.T) {
	outside := fill(t, map[string][]byte{"secret": []byte("secret")})
	into := t.TempDir()
	for link, to := range map[string]string{"dir": outside, "file": filepath.Join(outside, "secret"), "new.part": filepath.Join(outside, "secret"), "up": ".."} {
		if err := os.Symlink(to, filepath.Join(into, link)); err != nil {
			t.Fatal(err)
		}
	}
	var files []File
	for _, name := range []string{"dir/x", "dir/secret", "file", "new", "up/x"} {
		files = append(files, File{Name: name, Size: 3})
	}
	c := &duplex{Reader: bytes.NewReader(said(t, offer{Version: version, Files: files}))}
	_, _ = Receive(t.Context(), c, ReceiveOptions{Into: into, Overwrite: true})
	var a answer
	if err := (&reader{from: &c.said}).expect(kindAnswer, &a); err != nil {
		t.Fatal(err)
	}
	for i, f := range a.Files {
		if f.Refused == "" {
			t.Errorf("%s is taken", files[i].Name)
		}
		if len(f.Held) > 0 {
			t.Errorf("%s: the size of something outside is told", files[i].Name)
		}
	}
	if got := tree(t, outside); len(got) != 1 || got["secret"] != "secret" {
		t.Errorf("outside there is now %v", got)
	}
}

func TestReceiverRefusesWhatCannotBe(t *testing.T) {
	one := offer{Version: version, Files: []File{{Name: "a", Size: 3}}}
	there := offer{Version: version, Files: []File{{Name: "there", Size: 3}}}
	for name, bytes := range map[string][]byte{
		"noise":         []byte("SSH-2.0-OpenSSH_9.2p1\r\n"),
		"empty offer":   said(t, offer{Version: version}),
		"version":       said(t, offer{Version: version + 1, Files: one.Files}),
		"twice":         said(t, offer{Version: version, Files: []File{{Name: "a"}, {Name: "a"}}}),
		"negative":      said(t, offer{Version: version, Files: []File{{Name: "a", Size: -1}}}),
		"no hashes":     said(t, there, begin{There: true}),
		"a hash more":   said(t, there, proof{Files: [][]digest{make([]digest, 2)}}),
		"files more":    said(t, there, proof{Files: make([][]digest, 2)}),
		"other content": said(t, there, proof{Files: [][]digest{make([]digest, 1)}}, begin{There: true}),
		"no beginning":  said(t, one, []byte("abc")),
		"too much":      said(t, one, begin{}, []byte("abcd")),
		"from nowhere":  said(t, one, begin{From: 2}, []byte("c")),
		"not there":     said(t, one, begin{There: true}),
		"broken off":    said(t, one, begin{}, []byte("ab")),
		"without end":   said(t, one, begin{}, []byte("abc")),
		"half a header": said(t, one)[:3],
	} {
		into := fill(t, map[string][]byte{"there": []byte("yes")})
		if r, err := Receive(t.Context(), &duplex{Reader: strings.NewReader(string(bytes))}, ReceiveOptions{Into: into}); err == nil {
			t.Errorf("%s: no error, %+v", name, r)
		}
		if _, err := os.Stat(filepath.Join(into, "a")); err == nil {
			t.Errorf("%s: the file is there", name)
		}
	}
}

// A sender that knows a file's size, and not its content, does not learn its hash, of a whole file or of a part.
func TestHashesAreNotTold(t *testing.T) {
	into := fill(t, map[string][]byte{"whole": []byte("secret"), "begun.part": []byte("half a secret")})
	o := offer{Version: version, Files: []File{{Name: "whole", Size: 6}, {Name: "begun", Size: 100}}}
	guess := proof{Files: [][]digest{{digest(sha256.Sum256([]byte("secrez")))}, {digest{}}}}
	c := &duplex{Reader: bytes.NewReader(said(t, o, guess))}
	_, _ = Receive(t.Context(), c, ReceiveOptions{Into: into})
	if said := c.said.String(); strings.Contains(said, sumOf("secret")) || strings.Contains(said, sumOf("half a secret")) {
		t.Errorf("the receiver says %q", said)
	}
	in := reader{from: &c.said}
	for i, want := range []int{1, 0} {
		var a answer
		if err := in.expect(kindAnswer, &a); err != nil {
			t.Fatal(err)
		}
		for _, f := range a.Files {
			if len(f.Held) != want {
				t.Errorf("answer %d: %+v", i, f)
			}
		}
	}
}

// An offer that is broken off leaves no directory that it had made, also where two transfers share one.
func TestBrokenOfferLeavesNoDirectories(t *testing.T) {
	into, parts := t.TempDir(), &Parts{}
	if err := os.Mkdir(filepath.Join(into, "mine"), 0o755); err != nil {
		t.Fatal(err)
	}
	var senders []net.Conn
	over := make(chan error)
	for _, name := range []string{"a/b/c/first", "a/b/second", "mine/new/third"} {
		a, b := socketPair(t)
		senders = append(senders, a)
		go func() {
			_, err := Receive(t.Context(), b, ReceiveOptions{Into: into, Parts: parts})
			over <- err
		}()
		if _, err := a.Write(said(t, offer{Version: version, Files: []File{{Name: name, Size: 3}}})); err != nil {
			t.Fatal(err)
		}
		if err := (&reader{from: a}).expect(kindAnswer, &answer{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, a := range senders {
		a.Close()
		if err := <-over; err == nil {
			t.Error("an offer that is broken off is no error")
		}
	}
	entries, err := os.ReadDir(into)
	if err != nil || len(entries) != 1 || entries[0].Name() != "mine" {
		t.Errorf("there is %v, %v", entries, err)
	}
	if below, err := os.ReadDir(filepath.Join(into, "mine")); err != nil || len(below) != 0 {
		t.Errorf("in mine there is %v, %v", below, err)
	}
}

func FuzzFrames(f *testing.F) {
	f.Add(said(f, offer{Version: version, Files: []File{{Name: "a", Size: 3}}}))
	f.Add([]byte("D\x00\x00\x00\x03abc"))
	f.Add([]byte("O\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := reader{from: bytes.NewReader(data)}
		for {
			got, err := r.read()
			if err != nil {
				return
			}
			if len(got.payload) > int(got.kind.limit()) || len(got.payload) > len(data) {
				t.Fatalf("a frame of %d bytes from %d", len(got.payload), len(data))
			}
		}
	})
}

// Whatever a sender says, nothing is written outside the directory, and a file has its name only with its hash.
func FuzzReceive(f *testing.F) {
	whole := digest{}
	_ = whole.UnmarshalText([]byte("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")) // of "abc"
	o := offer{Version: version, Files: []File{{Name: "d/a", Size: 3}}}
	f.Add(said(f, o, begin{}, []byte("abc"), ending{SHA256: whole}))
	f.Add(said(f, o, begin{}, []byte("ab"), ending{SHA256: whole}))
	f.Add(said(f, o, begin{}, []byte("abc"), ending{SHA256: whole}, o, proof{Files: [][]digest{{whole}}}, begin{There: true}))
	f.Add(said(f, offer{Version: version, Files: []File{{Name: "../a", Size: 3}, {Name: "b", Size: 0, Executable: true}}}, begin{}, ending{}))
	f.Fuzz(func(t *testing.T, data []byte) {
		top := t.TempDir()
		into := filepath.Join(top, "into")
		if err := os.Mkdir(into, 0o755); err != nil {
			t.Fatal(err)
		}
		report, _ := Receive(t.Context(), &duplex{Reader: bytes.NewReader(data)}, ReceiveOptions{Into: into, MaxBytes: 1 << 20})
		if _, err := json.Marshal(report); err != nil {
			t.Error(err)
		}
		if entries, _ := os.ReadDir(top); len(entries) != 1 {
			t.Errorf("beside the directory there is %v", entries)
		}
		arrived := map[string]string{}
		for _, one := range report.Files {
			if one.Arrived() {
				arrived[one.Name] = one.SHA256
			}
		}
		for name, content := range tree(t, into) {
			if strings.HasSuffix(name, PartSuffix) {
				continue
			}
			if sum := sumOf(content); arrived[name] != sum {
				t.Errorf("%q has its name and the hash %s; told was %q", name, sum, arrived[name])
			}
		}
	})
}

func FuzzSend(f *testing.F) {
	f.Add([]byte("A\x00\x00\x00\x0e{\"files\":[{}]}R\x00\x00\x00\x0e{\"files\":[{}]}"))
	f.Add([]byte("S\x00\x00\x00\x0d{\"why\":\"full\"}"))
	file := filepath.Join(f.TempDir(), "a")
	if err := os.WriteFile(file, []byte("abc"), 0o600); err != nil {
		f.Fatal(err)
	}
	files, _, err := Collect([]string{file})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		report, err := Send(t.Context(), &duplex{Reader: bytes.NewReader(data)}, files, SendOptions{})
		if err == nil && len(report.Files) != 1 {
			t.Errorf("no error, and %+v", report)
		}
	})
}
