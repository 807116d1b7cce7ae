package browser

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"heddle/internal/clienthello"
	"heddle/lab/peer"
)

const name = "www.example"

// certificate is a certificate of a server, and its parsed form.
func certificate(t testing.TB) (tls.Certificate, *x509.Certificate) {
	t.Helper()
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "certificate.pem"), filepath.Join(dir, "key.pem")
	if err := peer.SelfSigned(cert, key, []string{name}, nil); err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	return pair, pair.Leaf
}

// said returns the hello of a connection.
func said(t testing.TB, h Hello, server string) (clienthello.Hello, []byte) {
	t.Helper()
	ours, theirs := net.Pipe()
	defer ours.Close()
	go func() {
		_, _ = h.Dial(t.Context(), theirs, Server{Name: server})
		theirs.Close()
	}()
	var stream []byte
	for b := make([]byte, 4096); ; {
		n, err := ours.Read(b)
		stream = append(stream, b[:n]...)
		if parsed, wrong := clienthello.Parse(clienthello.Handshake(stream)); wrong == nil {
			return parsed, stream
		} else if err != nil {
			t.Fatal(err, wrong)
		}
	}
}

// shape is what an observer compares of a hello, in any order of the extensions, as JA4 does: names of servers, keys and values of GREASE
// are left out.
func shape(h clienthello.Hello) (all []string) {
	clear := func(list []uint16) (out []uint16) {
		for _, v := range list {
			if isGREASE(v) {
				v = 0x0a0a
			}
			out = append(out, v)
		}
		return out
	}
	all = append(all, fmt.Sprintf("suites %x, versions %x, groups %x, shares %x, %v", clear(h.CipherSuites), clear(h.Versions), clear(h.Groups), clear(h.KeyShares), h.Protocols))
	for _, e := range h.Extensions {
		body := fmt.Sprintf("%x", e.Body)
		switch {
		case isGREASE(e.Type):
			e.Type, body = 0x0a0a, fmt.Sprint(len(e.Body))
		case e.Type == clienthello.ServerName, e.Type == clienthello.KeyShare, e.Type == clienthello.SupportedGroups, e.Type == clienthello.SupportedVersions:
			body = "" // it is compared above
		case e.Type == clienthello.EncryptedHello: // random bytes behind the numbers of the algorithms, whose length Chromium draws
			body = body[:10]
		case e.Type == 13: // signature_algorithms, of which the first may be GREASE
			if first := uint16(e.Body[2])<<8 | uint16(e.Body[3]); isGREASE(first) {
				body = "grease" + body[8:]
			}
		}
		all = append(all, fmt.Sprintf("%04x %s", e.Type, body))
	}
	slices.Sort(all)
	return all
}

// A client's hello has the parts of the browser's, with another name and in another order. No two hellos are the same.
func TestSaysWhatABrowserSays(t *testing.T) {
	recorded, err := clienthello.Parse(clienthello.Handshake(chromium))
	if err != nil {
		t.Fatal(err)
	}
	h, err := HelloOf("chrome")
	if err != nil {
		t.Fatal(err)
	}
	orders := map[string]bool{}
	for range 4 {
		got, stream := said(t, h, name)
		if got.ServerName != name {
			t.Errorf("it names %q", got.ServerName)
		}
		if a, b := shape(got), shape(recorded); !slices.Equal(a, b) {
			t.Errorf("it says\n%s\nand the browser\n%s", strings.Join(a, "\n"), strings.Join(b, "\n"))
		}
		if want := len(chromium) + len(name) - len("localhost"); len(stream) != want {
			t.Errorf("%d bytes, want %d", len(stream), want)
		}
		var order []uint16
		for _, e := range got.Extensions {
			if !isGREASE(e.Type) {
				order = append(order, e.Type)
			}
		}
		orders[fmt.Sprint(order)] = true
		if !isGREASE(got.Extensions[0].Type) || !isGREASE(got.Extensions[len(got.Extensions)-1].Type) || string(got.Random) == string(recorded.Random) {
			t.Error("GREASE is not at both ends, or the recorded random bytes are repeated")
		}
	}
	if len(orders) < 2 {
		t.Error("the order of extensions is the same each time")
	}
}

func TestHellosOfTheLibrary(t *testing.T) {
	h, err := HelloOf("firefox")
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := said(t, h, name); slices.ContainsFunc(got.CipherSuites, isGREASE) || !slices.Equal(got.Protocols, []string{"h2", "http/1.1"}) {
		t.Errorf("it is not Firefox: %x, %v", got.CipherSuites, got.Protocols)
	}
}

// changed returns the recorded hello with other bytes in place of some.
func changed(t *testing.T, old, with string) []byte {
	t.Helper()
	if strings.Count(string(chromium), old) != 1 {
		t.Fatalf("the recording has no %q", old)
	}
	return []byte(strings.Replace(string(chromium), old, with, 1))
}

func TestRefusesHellos(t *testing.T) {
	for what, c := range map[string]struct {
		record []byte
		why    string
	}{
		"nothing":   {nil, "not here in full"},
		"cut":       {chromium[:700], "not here in full"},
		"a request": {[]byte("GET / HTTP/1.1\r\n\r\n"), "not here in full"},
		"no name":   {changed(t, "\x00\x00\x00\x0e\x00\x0c\x00\x00\x09localhost", "\xfa\xfa\x00\x0e\x00\x0c\x00\x00\x09localhost"), "names no server"},
		"resumed":   {append([]byte{22, 3, 1, 2, 0}, resumed(t)...), "resumes"},
		"old":       {changed(t, "\x03\x04\x03\x03", "\x03\x02\x03\x03"), "no TLS 1.3"},
	} {
		if _, err := Recorded(c.record); err == nil || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s: %v, want %q", what, err, c.why)
		}
	}
	file := filepath.Join(t.TempDir(), "hello")
	for content, want := range map[string]bool{string(chromium): true, string(chromium) + "what follows": true, "text": false} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := HelloOf(file); (err == nil) != want {
			t.Errorf("%.20q: %v", content, err)
		}
	}
	if _, err := HelloOf(file + "x"); err == nil || !strings.Contains(err.Error(), "cannot be read") {
		t.Error(err)
	}
}

// resumed is a hello with a name and a session to resume.
func resumed(t *testing.T) []byte {
	t.Helper()
	extensions := "\x00\x00\x00\x06\x00\x04\x00\x00\x01a" + "\x00\x29\x00\x00"
	body := "\x03\x03" + strings.Repeat("r", 32) + "\x00" + "\x00\x02\x13\x01" + "\x01\x00" + string([]byte{0, byte(len(extensions))}) + extensions
	return append([]byte{1, 0, 0, byte(len(body))}, body...)
}

// serve is an HTTPS server whose handler any client may use.
func serve(t testing.TB, config *tls.Config, handler http.Handler) string {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", config)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: handler}
	go s.Serve(l) //nolint:errcheck // it ends by Close
	t.Cleanup(func() { s.Close() })
	return l.Addr().String()
}

// A certificate is checked by authorities and name, or by a pin, and nothing below TLS 1.3 is spoken.
func TestKnowsItsServer(t *testing.T) {
	pair, leaf := certificate(t)
	_, other := certificate(t)
	roots, pin, wrong := x509.NewCertPool(), PinOf(leaf), PinOf(other)
	roots.AddCert(leaf)
	h, err := HelloOf("")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what   string
		to     Server
		config *tls.Config
		why    string
		http2  bool
	}{
		{"by authority", Server{Name: name, Roots: roots}, &tls.Config{NextProtos: []string{"h2", "http/1.1"}}, "", true},
		{"with HTTP/1.1 only", Server{Name: name, Roots: roots}, &tls.Config{NextProtos: []string{"http/1.1"}}, "", false},
		{"by pin", Server{Name: "elsewhere.example", Pin: &pin}, &tls.Config{}, "", false},
		{"another name", Server{Name: "elsewhere.example", Roots: roots}, &tls.Config{}, "not elsewhere.example", false},
		{"another authority", Server{Name: name, Roots: x509.NewCertPool()}, &tls.Config{}, "unknown authority", false},
		{"another key", Server{Name: name, Pin: &wrong, Roots: roots}, &tls.Config{}, "another key", false},
		{"TLS 1.2", Server{Name: name, Roots: roots}, &tls.Config{MaxVersion: tls.VersionTLS12}, ErrOldTLS.Error(), false},
	} {
		t.Run(c.what, func(t *testing.T) {
			c.config.Certificates = []tls.Certificate{pair}
			conn, err := net.Dial("tcp", serve(t, c.config, http.NotFoundHandler()))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			client, err := h.Dial(t.Context(), conn, c.to)
			if c.why != "" {
				if err == nil || !strings.Contains(err.Error(), c.why) {
					t.Errorf("%v, want %q", err, c.why)
				}
				return
			}
			if err != nil || client.HTTP2 != c.http2 {
				t.Errorf("%+v, %v", client, err)
			}
		})
	}
}

// Record takes a browser's hello in any parts, and refuses all else.
func TestRecord(t *testing.T) {
	got, err := Record(iotest.OneByteReader(bytes.NewReader(chromium)))
	if err != nil || !bytes.Equal(got, chromium) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	for what, said := range map[string]string{"a request": "GET / HTTP/1.1\r\n\r\n", "nothing": "", "a part": string(chromium[:700]), "too much": "\x16\x03\x01\xff\xff\x01\x00\xff\xff" + strings.Repeat("a", 1<<17)} {
		if _, err := Record(strings.NewReader(said)); err == nil {
			t.Errorf("%s is taken", what)
		}
	}
}

func FuzzRecorded(f *testing.F) {
	f.Add(chromium)
	f.Add([]byte("\x16\x03\x01\x00\x04\x01\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, record []byte) {
		if h, err := Recorded(record); err == nil {
			if _, err := h.spec(); err != nil {
				t.Error(err)
			}
		}
	})
}
