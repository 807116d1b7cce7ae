package browser

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// open connects to a server of the standard library by HTTP/2.
func open(t testing.TB, handler http.HandlerFunc) *Conn {
	t.Helper()
	pair, leaf := certificate(t)
	pin := PinOf(leaf)
	h, err := HelloOf("")
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", serve(t, &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2"}}, handler))
	if err != nil {
		t.Fatal(err)
	}
	client, err := h.Dial(t.Context(), conn, Server{Name: name, Pin: &pin})
	if err != nil {
		t.Fatal(err)
	}
	c, err := NewConn(client)
	if err != nil {
		t.Fatal(err)
	}
	var work sync.WaitGroup
	work.Go(func() { _ = c.Serve() })
	t.Cleanup(func() { conn.Close(); work.Wait() })
	return c
}

func fetch(c *Conn, r Request) (status int, body []byte, err error) {
	s, err := c.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer s.Close()
	if status, _, err = s.Head(); err != nil {
		return 0, nil, err
	}
	body, err = io.ReadAll(s)
	return status, body, err
}

// Many requests at once, with bodies and answers that are larger than all windows together.
func TestManyAtOnce(t *testing.T) {
	c := open(t, func(w http.ResponseWriter, r *http.Request) {
		sum := sha256.New()
		_, _ = io.Copy(sum, r.Body)
		w.Header().Set("X-Sum", fmt.Sprintf("%x", sum.Sum(nil)))
		if r.Header.Get("Cookie") != "a=1; b=2" || r.Host != name {
			w.WriteHeader(400)
		}
		_, _ = w.Write(bytes.Repeat([]byte(r.RequestURI[1:2]), 3<<20))
	})
	var work sync.WaitGroup
	for i := range 12 {
		work.Go(func() {
			r := Request{Method: "GET", Authority: name, Path: fmt.Sprintf("/%c", 'a'+i), Fields: []Field{{Name: "Cookie", Value: "a=1"}, {Name: "Cookie", Value: "b=2", Once: true}}}
			if i%2 == 0 {
				r.Method, r.Body = "POST", bytes.Repeat([]byte{byte(i)}, 2<<20)
			}
			s, err := c.Do(r)
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close()
			status, header, err := s.Head()
			if want := fmt.Sprintf("%x", sha256.Sum256(r.Body)); err != nil || status != 200 || header.Get("X-Sum") != want {
				t.Errorf("%d, %v, %v", status, header, err)
			}
			body, err := io.ReadAll(s)
			if err != nil || len(body) != 3<<20 || bytes.Count(body, body[:1]) != len(body) || body[0] != byte('a'+i) {
				t.Errorf("%d bytes, %v", len(body), err)
			}
		})
	}
	work.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.streams) > 0 || c.room+c.consumed != connWindow {
		t.Errorf("%d streams are left, and of the window %d", len(c.streams), c.room+c.consumed)
	}
}

// An answer that is not read to its end is given up, and others go on.
func TestGivesUp(t *testing.T) {
	c := open(t, func(w http.ResponseWriter, r *http.Request) {
		for r.RequestURI == "/endless" {
			if _, err := w.Write(make([]byte, 64<<10)); err != nil {
				return
			}
		}
	})
	for range 5 {
		s, err := c.Do(Request{Method: "GET", Authority: name, Path: "/endless"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(s, make([]byte, 5<<20)); err != nil {
			t.Fatal(err)
		}
		s.Close()
		if _, err := s.Read(make([]byte, 1)); err == nil {
			t.Error("a closed stream is read")
		}
	}
	if status, body, err := fetch(c, Request{Method: "GET", Authority: name, Path: "/"}); err != nil || status != 200 || len(body) > 0 {
		t.Error(status, body, err)
	}
}

// Each header has the length of that which Chromium 156 sent in the same place of a connection.
func TestHeadersAreAsLongAsABrowsers(t *testing.T) {
	fields := func(text string) (all []Field) {
		for line := range strings.SplitSeq(text, "\n") {
			name, value, _ := strings.Cut(line, ": ")
			all = append(all, Field{Name: name, Value: value})
		}
		return all
	}
	const agent = "user-agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) HeadlessChrome/156.0.0.0 Safari/537.36"
	const brand = `sec-ch-ua: "Not:A-Brand";v="8", "Chromium";v="156"`
	const platform = `sec-ch-ua-platform: "Linux"`
	const rest = "\nreferer: https://localhost:39449/\naccept-encoding: gzip, deflate, br, zstd\naccept-language: en-US,en;q=0.9\ncookie: s=abc\n"
	c, err := NewConn(struct {
		io.Reader
		io.Writer
	}{strings.NewReader(""), io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range []struct {
		path, fields string
		want         int
	}{
		{"/", brand + "\nsec-ch-ua-mobile: ?0\n" + platform + "\nupgrade-insecure-requests: 1\n" + agent +
			"\naccept: text/html,application/xhtml+xml,application/xml;q=0.9,image/jxl,image/avif,image/webp,image/apng,*/*;q=0.8,application/signed-exchange;v=b3;q=0.7\n" +
			"sec-fetch-site: none\nsec-fetch-mode: navigate\nsec-fetch-user: ?1\nsec-fetch-dest: document\naccept-encoding: gzip, deflate, br, zstd\naccept-language: en-US,en;q=0.9\npriority: u=0, i", 437},
		{"/style.css", platform + "\n" + agent + "\n" + brand + "\nsec-ch-ua-mobile: ?0\naccept: text/css,*/*;q=0.1\nsec-fetch-site: same-origin\nsec-fetch-mode: no-cors\nsec-fetch-dest: style" + rest + "priority: u=0", 97},
		{"/app.js", platform + "\n" + agent + "\n" + brand + "\nsec-ch-ua-mobile: ?0\naccept: */*\nsec-fetch-site: same-origin\nsec-fetch-mode: no-cors\nsec-fetch-dest: script" + rest + "priority: u=1", 44},
	} {
		c.encode(Request{Method: "GET", Authority: "localhost:39449", Path: one.path, Fields: fields(one.fields)})
		if got := c.block.Len() + 5; got != one.want { // with the priority
			t.Errorf("%s: %d bytes, and the browser sent %d", one.path, got, one.want)
		}
	}
}

// hostile gives a client with one request on its way the frames of a server. It returns how Serve ended.
func hostile(frames []byte) (s *Stream, c *Conn, err error) {
	c, err = NewConn(struct {
		io.Reader
		io.Writer
	}{bytes.NewReader(frames), io.Discard})
	if err != nil {
		return nil, nil, err
	}
	if s, err = c.Do(Request{Method: "GET", Authority: name, Path: "/"}); err != nil {
		return nil, nil, err
	}
	return s, c, c.Serve()
}

// frames are what a server writes.
func frames(write func(*http2.Framer)) []byte {
	var b bytes.Buffer
	f := http2.NewFramer(&b, nil)
	f.AllowIllegalWrites = true
	write(f)
	return b.Bytes()
}

func block(fields ...string) []byte {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	for i := 0; i < len(fields); i += 2 {
		_ = e.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	return b.Bytes()
}

// A server that breaks the protocol loses the connection. The end of one answer ends no other.
func TestHostileServer(t *testing.T) {
	head := func(f *http2.Framer, id uint32, end bool, fields ...string) {
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block(fields...), EndHeaders: true, EndStream: end})
	}
	for _, c := range []struct {
		what    string
		write   func(*http2.Framer)
		breaks  bool // the connection
		fails   bool // the answer
		content string
	}{
		{"an answer", func(f *http2.Framer) {
			head(f, 1, false, ":status", "103")
			head(f, 1, false, ":status", "200")
			_ = f.WriteDataPadded(1, false, []byte("hel"), make([]byte, 100))
			_ = f.WriteData(1, true, []byte("lo"))
		}, false, false, "hello"},
		{"with a trailer", func(f *http2.Framer) {
			head(f, 1, false, ":status", "200")
			_ = f.WriteData(1, false, []byte("hello"))
			head(f, 1, true, "a", "b")
		}, false, false, "hello"},
		{"data without a head", func(f *http2.Framer) { _ = f.WriteData(1, true, []byte("hello")) }, true, true, ""},
		{"data behind the end", func(f *http2.Framer) {
			head(f, 1, true, ":status", "200")
			_ = f.WriteData(1, true, []byte("hello"))
		}, true, false, ""},
		{"an unknown stream", func(f *http2.Framer) { _ = f.WriteData(7, true, []byte("hello")) }, true, true, ""},
		{"a stream of the server", func(f *http2.Framer) { head(f, 2, true, ":status", "200") }, true, true, ""},
		{"a push", func(f *http2.Framer) {
			_ = f.WritePushPromise(http2.PushPromiseParam{StreamID: 1, PromiseID: 2, BlockFragment: block(":method", "GET"), EndHeaders: true})
		}, true, true, ""},
		{"no status", func(f *http2.Framer) { head(f, 1, true, "a", "b") }, false, true, ""},
		{"an odd status", func(f *http2.Framer) { head(f, 1, true, ":status", "-1") }, false, true, ""},
		{"a long head", func(f *http2.Framer) { head(f, 1, true, ":status", "200", "a", strings.Repeat("a", 2*headerList)) }, true, true, ""},
		{"a reset", func(f *http2.Framer) { _ = f.WriteRSTStream(1, http2.ErrCodeInternal) }, false, true, ""},
		{"the end", func(f *http2.Framer) { _ = f.WriteGoAway(0, http2.ErrCodeNo, nil) }, false, true, ""},
		{"too much credit", func(f *http2.Framer) {
			_ = f.WriteWindowUpdate(0, 1<<31-1)
			_ = f.WriteWindowUpdate(0, 1<<31-1)
		}, true, true, ""},
		{"a window that is too large", func(f *http2.Framer) {
			_ = f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 31})
		}, true, true, ""},
		{"more than the window", func(f *http2.Framer) {
			head(f, 1, false, ":status", "200")
			for range streamWindow/(16<<10) + 1 {
				_ = f.WriteData(1, false, make([]byte, 16<<10))
			}
		}, true, false, ""},
	} {
		t.Run(c.what, func(t *testing.T) {
			s, conn, err := hostile(frames(c.write))
			if (err != io.EOF) != c.breaks {
				t.Errorf("the connection ends with %v", err)
			}
			_, _, err = s.Head()
			if (err != nil) != c.fails {
				t.Errorf("the answer: %v", err)
			}
			if body, err := io.ReadAll(s); c.content != "" && (err != nil || string(body) != c.content) {
				t.Errorf("%q, %v", body, err)
			}
			if _, err := conn.Do(Request{Method: "GET", Path: "/"}); err == nil {
				t.Error("a request on a connection that ended")
			}
		})
	}
}

func TestAnswerThatIsBrokenOff(t *testing.T) {
	c := open(t, func(w http.ResponseWriter, r *http.Request) { panic(http.ErrAbortHandler) })
	if _, _, err := fetch(c, Request{Method: "GET", Authority: name, Path: "/"}); err == nil {
		t.Error("an answer that was broken off")
	}
}

func FuzzServer(f *testing.F) {
	f.Add(frames(func(f *http2.Framer) {
		_ = f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1})
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block(":status", "200"), EndHeaders: true})
		_ = f.WriteData(1, true, []byte("hello"))
		_ = f.WritePing(false, [8]byte{})
		_ = f.WriteGoAway(1, http2.ErrCodeNo, nil)
	}))
	f.Fuzz(func(t *testing.T, frames []byte) {
		s, c, err := hostile(frames)
		if err == nil {
			t.Fatal("it goes on without a connection")
		}
		if s == nil {
			return
		}
		_, _, _ = s.Head()
		_, _ = io.ReadAll(s)
		s.Close()
		if c.room < 0 || len(c.streams) > 0 {
			t.Errorf("%d bytes of room, %d streams", c.room, len(c.streams))
		}
	})
}
