package tenant

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"golang.org/x/net/websocket"

	"heddle/internal/contentcoding"
	"heddle/internal/polltest"
	"heddle/pseudonym/mutual"
)

// socket opens a WebSocket by HTTP/1.1, as a browser does.
func (v *visit) socket(t testing.TB, path string) *websocket.Conn {
	t.Helper()
	config, err := websocket.NewConfig("wss://"+v.name+path, "https://"+v.name)
	if err != nil {
		t.Fatal(err)
	}
	config.Header.Set("Cookie", mutual.CookieName+"="+v.Capability.String())
	c, err := websocket.NewClient(config, v.dial(t, "http/1.1"))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A WebSocket passes, the application sees its own name as the origin, and the socket ends with the pseudonym.
func TestWebSocket(t *testing.T) {
	v := newVisit(t, Options{}, node(t)).start(t)
	c := v.socket(t, "/socket")
	echo := func(text string) error {
		if _, err := c.Write([]byte(text)); err != nil {
			return err
		}
		got := make([]byte, len(text))
		if _, err := io.ReadFull(c, got); err != nil || string(got) != text {
			return fmt.Errorf("%q, %w", got, err)
		}
		return nil
	}
	for _, text := range []string{"hello", "//" + site, strings.Repeat("x", 125)} {
		if err := echo(text); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
	}
	v.gone.Store(true)
	v.names.Forget(t.Context(), v.Label)
	polltest.Await(t, "the socket ends with its pseudonym", func() bool { return echo("still here") != nil })
}

// A WebSocket by HTTP/2 (RFC 8441) is not offered, and one that comes nevertheless is refused without asking the application. Browsers
// then take HTTP/1.1.
func TestWebSocketByHTTP2(t *testing.T) {
	var asked atomic.Int64
	behind := serving(t, func(http.ResponseWriter, *http.Request) { asked.Add(1) })
	v := newVisit(t, Options{}, behind).start(t)
	c := v.dial(t, "h2")
	io.WriteString(c, http2.ClientPreface)
	f := http2.NewFramer(c, c)
	if err := f.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	for _, h := range [][2]string{{":method", "CONNECT"}, {":protocol", "websocket"}, {":scheme", "https"}, {":path", "/socket"}, {":authority", v.name}, {"sec-websocket-version", "13"},
		{"cookie", mutual.CookieName + "=" + v.Capability.String()}} {
		e.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]})
	}
	if err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true}); err != nil {
		t.Fatal(err)
	}
	for refused := false; !refused; {
		frame, err := f.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if value, ok := frame.Value(http2.SettingEnableConnectProtocol); ok && value != 0 {
				t.Error("the extension is offered")
			}
		case *http2.RSTStreamFrame:
			refused = true
		case *http2.HeadersFrame:
			t.Fatal("an answer")
		}
	}
	if asked.Load() != 0 {
		t.Error("the application was asked")
	}
}

// An event arrives before the next one is sent.
func TestServerSentEvents(t *testing.T) {
	at := node(t)
	for _, protocol := range protocols {
		v := newVisit(t, Options{}, at).start(t)
		c := v.browser(t, protocol)
		r, err := c.Get("https://" + v.name + "/events")
		if err != nil {
			t.Fatal(err)
		}
		in := bufio.NewReader(r.Body)
		if line, err := in.ReadString('\n'); err != nil || line != "data: first\n" {
			t.Fatalf("%s: %q, %v", protocol, line, err)
		}
		v.get(t, c, "GET", "/poke", nil)
		if rest, err := io.ReadAll(in); err != nil || string(rest) != "\ndata: second\n\n" {
			t.Errorf("%s: %q, %v", protocol, rest, err)
		}
		r.Body.Close()
	}
}

// The beginning of a page arrives before the application has the rest, compressed or not.
func TestPagesLeaveAtOnce(t *testing.T) {
	for _, accepts := range []string{"", "gzip"} {
		rest := make(chan bool)
		v := newVisit(t, Options{}, serving(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			out := io.Writer(w)
			if r.Header.Get("Accept-Encoding") == "gzip" {
				w.Header().Set("Content-Encoding", "gzip")
				z := newPacker(w)
				defer z.Close()
				out = z
			}
			fmt.Fprintf(out, `<a href="//%s/">`, site)
			http.NewResponseController(w).Flush()
			<-rest
		})).start(t)
		q, err := http.NewRequest("GET", "https://"+v.name+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("Accept-Encoding", accepts)
		r, err := v.browser(t, "h2").Do(q)
		if err != nil {
			t.Fatal(err)
		}
		_, decode, err := contentcoding.Of(r.Header.Values("Content-Encoding"))
		if err != nil {
			t.Fatal(err)
		}
		body, err := decode(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		want := `<a href="//` + v.name + `/">`
		got := make([]byte, len(want))
		if _, err := io.ReadFull(body, got); err != nil || string(got) != want || r.Header.Get("Content-Encoding") != accepts {
			t.Errorf("%q: %q, %v", accepts, got, err)
		}
		close(rest)
		r.Body.Close()
	}
}

// Parts of files pass. Of pages only the whole does, since names in a part cannot be changed.
func TestRangesAndConditions(t *testing.T) {
	root := t.TempDir()
	page := `<a href="https://` + site + `/">` + strings.Repeat("x", 1000)
	for name, text := range map[string]string{"page.html": page, "file.bin": "0123456789"} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	v := newVisit(t, Options{}, serveFiles(t, root)).start(t)
	mine := strings.Replace(page, site, v.name, 1)
	for _, protocol := range protocols {
		c := v.browser(t, protocol)
		file, _ := v.get(t, c, "GET", "/file.bin", nil)
		html, text := v.get(t, c, "GET", "/page.html", nil)
		if text != mine || html.Header.Get("Accept-Ranges") != "" || file.Header.Get("Accept-Ranges") != "bytes" {
			t.Errorf("%s: %q %v", protocol, text, html.Header)
		}
		tag, weak, date := file.Header.Get("ETag"), html.Header.Get("ETag"), file.Header.Get("Last-Modified")
		if !strings.HasPrefix(weak, "W/") || tag == "" || strings.HasPrefix(tag, "W/") {
			t.Errorf("%s: tags %s and %s", protocol, tag, weak)
		}
		for _, one := range []struct {
			path   string
			header []string
			status int
			text   string
		}{
			{"/file.bin", []string{"Range", "bytes=2-4"}, 206, "234"},
			{"/file.bin", []string{"Range", "bytes=-2"}, 206, "89"},
			{"/file.bin", []string{"Range", "bytes=20-"}, 416, ""},
			{"/file.bin", []string{"Range", "bytes=2-4", "If-Range", tag}, 206, "234"},
			{"/file.bin", []string{"Range", "bytes=2-4", "If-Range", `"other"`}, 200, "0123456789"},
			{"/file.bin", []string{"If-None-Match", tag}, 304, ""},
			{"/file.bin", []string{"If-Modified-Since", date}, 304, ""},
			{"/file.bin", []string{"If-Match", `"other"`}, 412, ""},
			{"/page.html", []string{"Range", "bytes=0-10"}, 200, mine},
			{"/page.html", []string{"Range", "bytes=0-1,5-6"}, 200, mine},
			{"/page.html", []string{"Range", "bytes=0-10", "If-Range", weak}, 200, mine},
			{"/page.html", []string{"If-None-Match", weak}, 304, ""},
		} {
			r, text := v.get(t, c, "GET", one.path, nil, one.header...)
			if r.StatusCode != one.status || (one.status < 400 && text != one.text) {
				t.Errorf("%s: %s %v: %s %q", protocol, one.path, one.header, r.Status, text)
			}
		}
		if r, _ := v.get(t, c, "HEAD", "/file.bin", nil); r.ContentLength != 10 {
			t.Errorf("%s: HEAD: %v", protocol, r.Header)
		}
	}
}

// stream is an upload of so many bytes. It notes the largest heap that it sees.
type stream struct {
	left int64
	heap *uint64
	sum  io.Writer
}

func (s *stream) Read(b []byte) (int, error) {
	if s.left == 0 {
		return 0, io.EOF
	}
	n := min(int64(len(b)), s.left)
	if n >= 8 {
		binary.BigEndian.PutUint64(b, uint64(s.left))
	}
	if s.sum != nil {
		s.sum.Write(b[:n])
	}
	if s.left>>22 != (s.left-n)>>22 {
		*s.heap = max(*s.heap, heapInUse())
	}
	s.left -= n
	return int(n), nil
}

// heapInUse returns the bytes that are in use, without garbage.
func heapInUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// uploadSize returns how many bytes [TestUploads] sends: HEDDLE_UPLOAD, or few enough for each run.
func uploadSize(t *testing.T) int64 {
	text := os.Getenv("HEDDLE_UPLOAD")
	if text == "" {
		return 96 << 20
	}
	size, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatal("HEDDLE_UPLOAD is a number of bytes:", err)
	}
	return size
}

// An upload passes while it comes, with its length or without, and takes no memory for its size.
func TestUploads(t *testing.T) {
	const mostHeap = 48 << 20
	size := uploadSize(t)
	v := newVisit(t, Options{}, node(t)).start(t)
	before := heapInUse()
	for _, protocol := range protocols {
		for _, length := range []int64{size, -1} {
			hash, heap := sha256.New(), uint64(0)
			q, err := http.NewRequest("PUT", "https://"+v.name+"/upload", io.NopCloser(&stream{size, &heap, hash}))
			if err != nil {
				t.Fatal(err)
			}
			q.ContentLength = length
			r, err := v.browser(t, protocol).Do(q)
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(r.Body)
			if want := fmt.Sprintf("%d %s", size, hex.EncodeToString(hash.Sum(nil))); err != nil || string(text) != want {
				t.Errorf("%s, length %d: %q, want %q (%v)", protocol, length, text, want, err)
			}
			if heap == 0 || heap > before+mostHeap {
				t.Errorf("%s, length %d: %d MiB of heap for %d MiB, %d before", protocol, length, heap>>20, size>>20, before>>20)
			}
		}
	}
}

// A client that waits for permission gets it, and an upload that the application refuses does not seem to succeed.
func TestUploadsThatWait(t *testing.T) {
	v := newVisit(t, Options{}, node(t)).start(t)
	c := v.dial(t, "http/1.1")
	fmt.Fprintf(c, "PUT /upload HTTP/1.1\r\nHost: %s\r\nCookie: %s=%s\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n", v.name, mutual.CookieName, v.Capability)
	in := bufio.NewReader(c)
	first, err := http.ReadResponse(in, nil)
	if err != nil || first.StatusCode != http.StatusContinue {
		t.Fatalf("%+v, %v", first, err)
	}
	io.WriteString(c, "abc")
	r, err := http.ReadResponse(in, nil)
	if err != nil || r.StatusCode != http.StatusOK {
		t.Fatalf("%+v, %v", r, err)
	}
	for _, protocol := range protocols {
		rest, begin := io.Pipe() // the client sends the rest once it has the answer
		q, err := http.NewRequest("PUT", "https://"+v.name+"/refuse", rest)
		if err != nil {
			t.Fatal(err)
		}
		q.ContentLength = 64 << 20
		go begin.Write(make([]byte, 1<<10))
		defer time.AfterFunc(polltest.Patience, func() { begin.CloseWithError(io.ErrNoProgress) }).Stop() // for which the client waits
		r, err := v.browser(t, protocol).Do(q)
		begin.CloseWithError(io.ErrUnexpectedEOF)
		if err != nil {
			t.Errorf("%s: no answer: %v", protocol, err)
			continue
		}
		r.Body.Close()
		// The application closes its connection with the answer, which may overtake that.
		if r.StatusCode != http.StatusRequestEntityTooLarge && r.StatusCode != http.StatusBadGateway {
			t.Errorf("%s: %s", protocol, r.Status)
		}
	}
}

// An application that answers while an upload comes gets all of it, once, and its client gets the answer.
func TestAnswersDuringUploads(t *testing.T) {
	const first, second = "the first half, ", "and the second"
	asked := make(chan bool, 10)
	v := newVisit(t, Options{}, serving(t, func(w http.ResponseWriter, r *http.Request) {
		asked <- true
		both := http.NewResponseController(w)
		if err := both.EnableFullDuplex(); err != nil {
			t.Error(err)
		}
		begin := make([]byte, len(first))
		_, err := io.ReadFull(r.Body, begin)
		w.Header().Set("Content-Type", "application/octet-stream")
		w.WriteHeader(http.StatusOK)
		both.Flush()
		rest, other := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s%s %v", begin, rest, errors.Join(err, other))
	})).start(t)
	for length, halves := range map[string][]string{
		fmt.Sprint("Content-Length: ", len(first+second)): {first, second},
		"Transfer-Encoding: chunked":                      {fmt.Sprintf("%x\r\n%s\r\n", len(first), first), fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(second), second)},
	} {
		c := v.dial(t, "http/1.1")
		c.SetDeadline(time.Now().Add(polltest.Patience))
		fmt.Fprintf(c, "POST /upload HTTP/1.1\r\nHost: %s\r\nCookie: %s=%s\r\n%s\r\n\r\n%s", v.name, mutual.CookieName, v.Capability, length, halves[0])
		r, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatalf("%s: no answer before the end: %v", length, err)
		}
		io.WriteString(c, halves[1])
		if text, err := io.ReadAll(r.Body); err != nil || string(text) != first+second+" <nil>" {
			t.Errorf("%s: %q, %v", length, text, err)
		}
		if <-asked; len(asked) > 0 {
			t.Errorf("%s: it was asked again", length)
		}
	}
}

// What changes something reaches the application once, also if that breaks off a connection that was used before. The client learns of it.
func TestUploadsAreNotRepeated(t *testing.T) {
	var got atomic.Int64
	v := newVisit(t, Options{}, serving(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			return
		}
		got.Add(1)
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			t.Error(err)
		}
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		c.Close()
	})).start(t)
	for _, protocol := range protocols {
		c := v.browser(t, protocol)
		for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete} {
			for name, body := range map[string]io.Reader{"nothing": nil, "a text": strings.NewReader("once"), "a stream": io.MultiReader(strings.NewReader("once"))} {
				v.get(t, c, http.MethodGet, "/", nil) // so that there is a connection
				got.Store(0)
				if r, _ := v.get(t, c, method, "/", body); r.StatusCode != http.StatusBadGateway || got.Load() != 1 {
					t.Errorf("%s, %s of %s: %s, and the application got it %d times", protocol, method, name, r.Status, got.Load())
				}
			}
		}
	}
}

// The password of HTTP authentication passes, and so does the question for it.
func TestHTTPAuthentication(t *testing.T) {
	v := newVisit(t, Options{}, node(t)).start(t)
	for _, protocol := range protocols {
		c := v.browser(t, protocol)
		if r, _ := v.get(t, c, "GET", "/login", nil); r.StatusCode != http.StatusUnauthorized || r.Header.Get("WWW-Authenticate") != `Basic realm="app"` {
			t.Errorf("%s: %s %v", protocol, r.Status, r.Header)
		}
		q, _ := http.NewRequest("GET", "https://"+v.name+"/login", nil)
		q.SetBasicAuth("alice", "secret")
		r, err := c.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		if text, _ := io.ReadAll(r.Body); string(text) != "welcome" {
			t.Errorf("%s: %q", protocol, text)
		}
	}
}

// An application of Node.js works as it is: pages in any encoding, forms, redirects, cookies.
func TestNode(t *testing.T) {
	v := newVisit(t, Options{}, node(t)).start(t)
	want := `<a href="https://` + v.name + `/next">next</a><form action="https://` + v.name + `/form" method="post"></form>`
	for _, protocol := range protocols {
		c := v.browser(t, protocol)
		for _, encoding := range []string{"", "gzip", "br", "deflate"} {
			if _, text := v.get(t, c, "GET", "/?encoding="+encoding, nil); text != want {
				t.Errorf("%s, %s: %q", protocol, encoding, text)
			}
		}
		r, _ := v.get(t, c, "POST", "/form", strings.NewReader("a=b"), "Origin", "https://"+v.name)
		if got := r.Header.Get("Location"); r.StatusCode != 303 || got != "https://"+v.name+"/done" {
			t.Errorf("%s: %s %s", protocol, r.Status, got)
		}
		if cookies := c.Jar.Cookies(&url.URL{Scheme: "https", Host: v.name}); len(cookies) != 2 {
			t.Errorf("%s: %v", protocol, cookies)
		}
		if r, text := v.get(t, c, "GET", "/hints", nil); text != "hinted" || r.Header.Get("Link") != "" {
			t.Errorf("%s: %q %v", protocol, text, r.Header)
		}
	}
}

// Hints of what a page will need, which come before its answer, do not reach the browser: they have the site's own name.
func TestEarlyHints(t *testing.T) {
	v := newVisit(t, Options{}, node(t)).start(t)
	c := v.dial(t, "http/1.1")
	fmt.Fprintf(c, "GET /hints HTTP/1.1\r\nHost: %s\r\nCookie: %s=%s\r\nConnection: close\r\n\r\n", v.name, mutual.CookieName, v.Capability)
	all, err := io.ReadAll(c)
	if err != nil || !bytes.HasPrefix(all, []byte("HTTP/1.1 200 OK\r\n")) || bytes.Contains(all, []byte(site)) {
		t.Errorf("%q, %v", all, err)
	}
}
