package tenant

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"heddle/internal/polltest"
	"heddle/pseudonym/mutual"
)

// behind returns the requests that an application of Node.js saw, whose parser of HTTP is not ours.
func (v *visit) behind(t testing.TB, at string) (all []string) {
	t.Helper()
	r, err := http.Get(at + "/requests")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if err := json.NewDecoder(r.Body).Decode(&all); err != nil {
		t.Fatal(err)
	}
	return all
}

// inEachWay tests a pseudonym of an application of Node.js, which the sidecar serves, and then nginx.
func inEachWay(t *testing.T, test func(t *testing.T, v *visit, at string)) {
	t.Run("sidecar", func(t *testing.T) {
		at := node(t)
		test(t, newVisit(t, Options{}, at).start(t), at)
	})
	t.Run("nginx", func(t *testing.T) {
		at := node(t)
		v, _ := newNginxVisit(t, at)
		test(t, v, at)
	})
}

// What one parser could take for a second request never reaches the application as one (RFC 9112, sections 6.3 and 11.2).
func TestRequestSmuggling(t *testing.T) { inEachWay(t, testRequestSmuggling) }

func testRequestSmuggling(t *testing.T, v *visit, at string) {
	second := "GET /smuggled HTTP/1.1\r\nHost: " + v.name + "\r\n\r\n"
	head := "POST /outer HTTP/1.1\r\nHost: " + v.name + "\r\nCookie: " + mutual.CookieName + "=" + v.Capability.String() + "\r\n"
	chunked := "0\r\n\r\n"
	for name, text := range map[string]string{
		"CL.TE":                      head + fmt.Sprintf("Content-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n", len(chunked+second)) + chunked + second,
		"TE.CL":                      head + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n" + fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(second), second),
		"TE.TE, unknown second":      head + "Transfer-Encoding: chunked\r\nTransfer-Encoding: cow\r\nContent-Length: 5\r\n\r\n" + chunked + second,
		"TE.TE, identity":            head + "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked + second,
		"TE, a space before colon":   head + "Transfer-Encoding : chunked\r\nContent-Length: 5\r\n\r\n" + chunked + second,
		"TE, vertical tab":           head + "Transfer-Encoding: \x0bchunked\r\nContent-Length: 5\r\n\r\n" + chunked + second,
		"TE, folded":                 head + "Transfer-Encoding:\r\n chunked\r\nContent-Length: 5\r\n\r\n" + chunked + second,
		"TE, xchunked":               head + "Transfer-Encoding: xchunked\r\nContent-Length: 5\r\n\r\n" + chunked + second,
		"two lengths":                head + "Content-Length: 0\r\nContent-Length: 5\r\n\r\n" + second,
		"a list of lengths":          head + "Content-Length: 0, 5\r\n\r\n" + second,
		"a signed length":            head + "Content-Length: +0\r\n\r\n" + second,
		"a hexadecimal length":       head + "Content-Length: 0x0\r\n\r\n" + second,
		"a bare LF in the header":    head + "X: y\nContent-Length: 0\r\n\r\n" + second,
		"a bare CR in a header":      head + "X: y\rTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n" + chunked + second,
		"NUL in a header":            head + "X: \x00\r\nContent-Length: 0\r\n\r\n" + second,
		"a chunk of a negative size": head + "Transfer-Encoding: chunked\r\n\r\n-1\r\n" + second,
		"a chunk of a huge size":     head + "Transfer-Encoding: chunked\r\n\r\nffffffffffffffff1\r\n" + second,
		"a chunk with extensions":    head + "Transfer-Encoding: chunked\r\n\r\n1;x=\"\r\n\r\n0\r\n\r\n" + second,
		"hop by hop":                 head + "Connection: Content-Length\r\nContent-Length: " + fmt.Sprint(len(second)) + "\r\n\r\n" + second,
		"a space in the path":        strings.Replace(head, "/outer", "/outer HTTP/1.1\r\nX: y\r\n\r\nGET /smuggled", 1) + "\r\n",
		"an upgrade without a reply": strings.Replace(head, "POST", "GET", 1) + "Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n" + second,
		"CONNECT":                    strings.Replace(head, "POST /outer", "CONNECT "+v.name+":443", 1) + "\r\n" + second,
	} {
		c := v.dial(t, "http/1.1")
		if _, err := io.WriteString(c, text); err != nil {
			t.Fatal(err)
		}
		// A second request that the sidecar itself sees has no capability, so it is answered with 400, 404 or 421, and goes nowhere.
		_ = c.CloseWrite()
		_ = c.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := io.ReadAll(c); err != nil && strings.Contains(err.Error(), "timeout") {
			t.Errorf("%s: the connection stays open", name)
		}
		c.Close()
		for _, one := range v.behind(t, at) {
			if strings.Contains(one, "smuggled") {
				t.Fatalf("%s: the application got %q", name, one)
			}
		}
	}
	// All that says something is that such requests do arrive when they are meant.
	if v.get(t, v.browser(t, "http/1.1"), "GET", "/smuggled", nil); !slices.Contains(v.behind(t, at), "GET /smuggled") {
		t.Error("the application does not note its requests")
	}
}

// A connection becomes a WebSocket and nothing else: by HTTP/2 its client could ask a server for what nobody checks.
func TestOtherUpgrades(t *testing.T) {
	inEachWay(t, func(t *testing.T, v *visit, _ string) {
		for _, to := range []string{"h2c", "websocket, h2c", "TLS/1.3"} {
			c := v.dial(t, "http/1.1")
			c.SetDeadline(time.Now().Add(polltest.Patience))
			fmt.Fprintf(c, "GET /headers HTTP/1.1\r\nHost: %s\r\nCookie: %s=%s\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: %s\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n", v.name, mutual.CookieName, v.Capability, to)
			r, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Fatalf("%s: %v", to, err)
			}
			var got map[string]string
			if err := json.NewDecoder(r.Body).Decode(&got); err != nil || got["upgrade"] != "" || strings.Contains(strings.ToLower(got["connection"]), "upgrade") {
				t.Errorf("%s: %s, the application gets %v, %v", to, r.Status, got, err)
			}
		}
	})
}

// HTTP/2 can carry what no header of HTTP/1.1 may have. None of it reaches the application (RFC 9113, sections 8.2 and 10.3).
func TestDowngrade(t *testing.T) { inEachWay(t, testDowngrade) }

func testDowngrade(t *testing.T, v *visit, at string) {
	byNginx, patience := v.near != "", polltest.Patience
	if byNginx { // it neither answers nor resets some streams that it refuses
		patience = 2 * time.Second
	}
	const second = "\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
	cookie := mutual.CookieName + "=" + v.Capability.String()
	plain := [][2]string{{":method", "POST"}, {":scheme", "https"}, {":path", "/outer"}, {":authority", v.name}, {"cookie", cookie}}
	with := func(key, value string) [][2]string {
		all := slices.Clone(plain)
		for i := range all {
			if all[i][0] == key && key[0] == ':' {
				all[i][1] = value
				return all
			}
		}
		return append(all, [2]string{key, value})
	}
	type outcome struct{ name, status string }
	cases := make(map[string]outcome)
	for name, headers := range map[string][][2]string{
		"CR LF in a value":           with("x", "y"+second),
		"CR LF in a name":            with("x: y"+second+"z", "1"),
		"LF in a value":              with("x", "y\nz: 1"),
		"NUL in a value":             with("x", "y\x00"),
		"CR LF in the path":          with(":path", "/outer HTTP/1.1"+second),
		"a space in the path":        with(":path", "/outer HTTP/1.1"),
		"CR LF in the method":        with(":method", "GET /smuggled HTTP/1.1\r\nX: "),
		"a space in the method":      with(":method", "GET /smuggled HTTP/1.1"),
		"CR LF in the authority":     with(":authority", v.name+second),
		"transfer-encoding":          with("transfer-encoding", "chunked"),
		"connection":                 with("connection", "x"),
		"te":                         with("te", "chunked"),
		"upper case":                 with("X", "y"),
		"an empty name":              with("", "y"),
		"a colon in a name":          with("x:y", "z"),
		"a second path":              append(slices.Clone(plain), [2]string{":path", "/smuggled"}),
		"a length that is too long":  with("content-length", "1000"),
		"a length that is too short": with("content-length", "1"),
		"two lengths":                append(with("content-length", "5"), [2]string{"content-length", "4"}),
		"another host":               with("host", "other.example"),
	} {
		own := fmt.Sprintf("/outer%d/", len(cases)) // the application may note a request that fails after the next case began
		c := v.dial(t, "h2")
		io.WriteString(c, http2.ClientPreface)
		f := http2.NewFramer(c, c)
		var block bytes.Buffer
		e := hpack.NewEncoder(&block)
		for _, h := range headers {
			e.WriteField(hpack.HeaderField{Name: h[0], Value: strings.Replace(h[1], "/outer", own, 1)})
		}
		if err := errorsOf(f.WriteSettings(), f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true}), f.WriteData(1, true, []byte("0"+second))); err != nil {
			t.Fatal(err)
		}
		c.SetDeadline(time.Now().Add(patience))
		cases[own] = outcome{name, answered(t, f)}
		c.Close()
	}
	for _, one := range v.behind(t, at) {
		var by outcome
		plain := one
		if at := strings.Index(one, "/outer"); at >= 0 {
			number, _, _ := strings.Cut(one[at+len("/outer"):], "/")
			own := "/outer" + number + "/"
			by, plain = cases[own], strings.Replace(one, own, "/outer", 1)
		}
		switch {
		case strings.Contains(plain, "smuggled"), strings.Contains(plain, "\n"), by.name == "" && !strings.HasPrefix(plain, "GET /requests"):
			t.Errorf("%s: the application got %q", by.name, one)
		case by.name == "", plain == "POST /outer" && by.status == "":
		case byNginx && plain == "POST /outer" && (by.name == "connection" || by.name == "transfer-encoding"): // without that header: what is behind it is the body
		case plain == "POST /outer%20HTTP/1.1", plain == "POST /outer" && (by.name == "another host" || by.name == "te" || strings.Contains(by.name, "length")):
		default:
			t.Errorf("%s: the application got %q (%s)", by.name, one, by.status)
		}
	}
}

func errorsOf(all ...error) error {
	for _, err := range all {
		if err != nil {
			return err
		}
	}
	return nil
}

// answered reads the status of the answer in stream 1, which is empty if the stream or the connection is reset.
func answered(t *testing.T, f *http2.Framer) (status string) {
	t.Helper()
	d := hpack.NewDecoder(4096, func(h hpack.HeaderField) {
		if h.Name == ":status" {
			status = h.Value
		}
	})
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return ""
		}
		switch frame := frame.(type) {
		case *http2.RSTStreamFrame, *http2.GoAwayFrame:
			return ""
		case *http2.HeadersFrame:
			_, _ = d.Write(frame.HeaderBlockFragment())
			return status
		}
	}
}

// An answer that two parsers read differently does not become the answer to another visitor's request.
func TestResponseSplitting(t *testing.T) {
	v := newVisit(t, Options{}, serving(t, func(w http.ResponseWriter, r *http.Request) {
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		switch r.URL.Path {
		case "/both":
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged")
		case "/more":
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\naHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged")
		default:
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na")
		}
	})).start(t)
	for _, protocol := range protocols {
		c := v.browser(t, protocol)
		for _, path := range []string{"/both", "/", "/more", "/"} {
			if _, text := v.get(t, c, "GET", path, nil); text != "a" {
				t.Errorf("%s: %s: %q", protocol, path, text)
			}
		}
	}
}

// A header that is too large is refused, and costs no memory.
func TestHugeHeaders(t *testing.T) {
	at := node(t)
	v := newVisit(t, Options{}, at).start(t)
	for _, protocol := range protocols {
		q, err := http.NewRequest("GET", "https://"+v.name+"/huge", nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 100 {
			q.Header.Set(fmt.Sprintf("X-%d", i), strings.Repeat("x", 4<<10))
		}
		if r, err := v.browser(t, protocol).Do(q); err == nil && r.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("%s: %s", protocol, r.Status)
		}
	}
	if all := v.behind(t, at); slices.Contains(all, "GET /huge") {
		t.Error("the application got it")
	}
}

// A client that does not end its header is dropped, without an answer.
func TestSlowHeader(t *testing.T) {
	v := newVisit(t, Options{}, serving(t, func(http.ResponseWriter, *http.Request) { t.Error("a request") }))
	v.headerFor = 50 * time.Millisecond
	v.start(t)
	c := v.dial(t, "http/1.1")
	c.SetDeadline(time.Now().Add(polltest.Patience))
	fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: %s\r\nX-Slow: ", v.name)
	if text, err := io.ReadAll(c); len(text) > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%q, %v", text, err)
	}
	polltest.Await(t, "the connection ends", func() bool { return v.names.Live() == 0 })
}

// The application ends an endless page when the client does.
func TestEndlessPage(t *testing.T) {
	at := node(t)
	v := newVisit(t, Options{}, at).start(t)
	for i, protocol := range protocols {
		r, err := v.browser(t, protocol).Get("https://" + v.name + "/endless")
		if err != nil {
			t.Fatal(err)
		}
		if n, err := io.CopyN(io.Discard, r.Body, 4<<20); err != nil {
			t.Fatalf("%s: %d bytes: %v", protocol, n, err)
		}
		r.Body.Close()
		polltest.Await(t, "the application ends", func() bool {
			closed := 0
			for _, one := range v.behind(t, at) {
				if one == "endless is closed" {
					closed++
				}
			}
			return closed == i+1
		})
	}
}

// A client that reads nothing of an endless page holds what its connection buffers: the application has to wait, and the sidecar keeps no more.
func TestClientThatReadsNothing(t *testing.T) {
	const mostSent, mostHeap = 256 << 20, 32 << 20 // the kernel's buffers are not in the heap
	part := bytes.Repeat([]byte("<p><a href=\"//"+site+"/\">x</a>"), 1000)
	for kind, protocol := range map[string]string{"text/html": "http/1.1", "text/css": "h2", "text/plain": "h2"} {
		waits := make(chan int)
		v := newVisit(t, Options{}, serving(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			sent, way := 0, http.NewResponseController(w)
			for sent < mostSent && way.SetWriteDeadline(time.Now().Add(2*time.Second)) == nil {
				n, err := w.Write(part)
				if sent += n; err != nil {
					break
				}
			}
			waits <- sent
		})).start(t)
		before := heapInUse()
		r, err := v.browser(t, protocol).Get("https://" + v.name + "/")
		if err != nil {
			t.Fatal(err)
		}
		if sent := <-waits; sent >= mostSent {
			t.Errorf("%s: the application could send %d MiB", kind, sent>>20)
		}
		if heap := heapInUse(); heap > before+mostHeap {
			t.Errorf("%s: %d MiB of heap, %d before", kind, heap>>20, before>>20)
		}
		r.Body.Close()
	}
}

// A page is changed in whatever encoding it comes. One that cannot be read is refused: its links could have plain names.
func TestEncodings(t *testing.T) {
	const page = `<a href="https://` + site + `/">x</a>`
	var z bytes.Buffer
	packed, err := zstd.NewWriter(&z)
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(packed, page)
	packed.Close()
	var g bytes.Buffer
	gz := gzip.NewWriter(&g)
	io.WriteString(gz, page)
	gz.Close()
	window, err := zstd.NewWriter(nil, zstd.WithWindowSize(64<<20), zstd.WithSingleSegment(false))
	if err != nil {
		t.Fatal(err)
	}
	wide := window.EncodeAll(bytes.Repeat([]byte(page), 1<<20), nil)
	v := newVisit(t, Options{}, serving(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", r.URL.Query().Get("type"))
		w.Header()["Content-Encoding"] = r.URL.Query()["encoding"]
		switch r.URL.Path {
		case "/zstd":
			w.Write(z.Bytes())
		case "/gzip":
			w.Write(g.Bytes())
		case "/wide":
			w.Write(wide)
		case "/head":
			w.(http.Flusher).Flush()
			w.Write(g.Bytes()[:15])
		default:
			io.WriteString(w, page)
		}
	})).start(t)
	want := strings.Replace(page, site, v.name, 1)
	for _, one := range []struct{ target, want string }{
		{"/zstd?encoding=zstd&type=text/html", want},
		{"/gzip?encoding=x-gzip&type=text/html", want},
		{"/gzip?encoding=identity&encoding=gzip&type=text/html", want},
		{"/plain?encoding=identity&type=text/html", want},
		{"/plain?type=", want}, // a browser would look into it
		{"/plain?type=html", want},
		{"/plain?type=*/*", want},
		{"/plain?type=TEXT/HTML;%20charset=utf-8;%20charset=utf-8", want},
		{"/plain?type=image/svg%2Bxml", want},
		{"/plain?type=text/plain", page},
		{"/plain?encoding=br&type=text/html", "-"},
		{"/gzip?encoding=gzip,%20gzip&type=text/html", "-"},
		{"/gzip?encoding=compress&type=text/html", "-"},
		{"/wide?encoding=zstd&type=text/html", "-"}, // its window would take too much memory
		{"/head?encoding=gzip&type=text/html", "-"},
	} {
		for _, accepts := range []string{"gzip, br, zstd", ""} {
			q, err := http.NewRequest("GET", "https://"+v.name+one.target, nil)
			if err != nil {
				t.Fatal(err)
			}
			q.Header.Set("Accept-Encoding", accepts)
			r, err := v.browser(t, "h2").Do(q)
			if err != nil && one.want == "-" {
				continue // it broke off before its header was on the way
			}
			if err != nil {
				t.Fatalf("%s: %v", one.target, err)
			}
			text, err := unpacked(r)
			r.Body.Close()
			switch {
			case one.want != "-" && (err != nil || text != one.want || r.StatusCode != 200 || accepts == "" && r.Header.Get("Content-Encoding") != ""):
				t.Errorf("%s for %q: %s %q, %v", one.target, accepts, r.Status, text, err)
			case one.want == "-" && err == nil && r.StatusCode != http.StatusBadGateway || strings.Contains(text, "//"+site) && one.want != page:
				t.Errorf("%s for %q: %s %q", one.target, accepts, r.Status, text)
			}
		}
	}
}

func unpacked(r *http.Response) (string, error) {
	body := bufio.NewReader(r.Body)
	if r.Header.Get("Content-Encoding") == gzipped {
		z, err := gzip.NewReader(body)
		if err != nil {
			return "", err
		}
		text, err := io.ReadAll(z)
		return string(text), err
	}
	text, err := io.ReadAll(body)
	return string(text), err
}
