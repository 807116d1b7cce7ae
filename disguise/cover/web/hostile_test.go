package web

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"heddle/disguise/cover"
	"heddle/disguise/cover/web/webtest"
)

// Requests that are no HTTP, too large, or odd get the answer of any web server, whichever way the website is reached.
func TestHostileRequests(t *testing.T) {
	for name, at := range inFront(t, "") {
		for what, c := range map[string]struct {
			request, status string
			text            string // of the body
		}{
			"no HTTP":              {"\x00\x01\x02\x03 binary\r\n\r\n", "400", ""},
			"a TLS hello":          {"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", "400", ""},
			"two lengths":          {"POST /api/event HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", "400", ""},
			"a length and chunks":  {"POST /api/event HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n", "501", ""},
			"no host":              {"GET / HTTP/1.1\r\n\r\n", "400", ""},
			"two hosts":            {"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "400", ""},
			"a long header":        {"GET / HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("a", 2*mostHeaders) + "\r\n\r\n", "431", ""},
			"many headers":         {"GET / HTTP/1.1\r\nHost: a\r\n" + strings.Repeat("A: b\r\n", mostHeaders) + "\r\n", "431", ""},
			"a long target":        {"GET /" + strings.Repeat("a", 2*mostHeaders) + " HTTP/1.1\r\nHost: a\r\n\r\n", "431", ""},
			"a long body":          {"POST /api/event HTTP/1.1\r\nHost: a\r\nContent-Length: 999999999\r\n\r\n" + strings.Repeat("a", mostBody+1), "413", ""},
			"a body without grace": {"POST /api/event HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n\x00\xff{}[", "200", `{"ok":true`},
			"CONNECT":              {"CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n", "405", ""},
			"a star":               {"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", "404", "Not here"},
		} {
			t.Run(name+"/"+what, func(t *testing.T) {
				t.Parallel()
				conn := reached(t, at, "http/1.1")
				_ = conn.SetDeadline(time.Now().Add(time.Minute))
				go io.WriteString(conn, c.request)
				r, err := http.ReadResponse(bufio.NewReader(conn), nil)
				if err != nil {
					t.Fatalf("no answer: %v", err)
				}
				defer r.Body.Close()
				body, _ := io.ReadAll(r.Body) // a server that refuses a long request may reset the connection
				if !strings.HasPrefix(r.Status, c.status) || !bytes.Contains(body, []byte(c.text)) {
					t.Errorf("%s %q", r.Status, body)
				}
				if after := exchangeWith(t, at, "GET", "/about", nil, nil); !strings.HasPrefix(after, "200") {
					t.Errorf("another visitor gets %s", after)
				}
			})
		}
	}
}

// Whatever name a visitor asks for, the bridge is the same website. Otherwise a prober could tell which names it knows.
func TestForeignHosts(t *testing.T) {
	for what, page := range map[string]struct{ origin, target string }{"the recorded site": {"", "/about"}, "the operator's site": {ownSite(t).URL, "/own"}} {
		for name, at := range inFront(t, page.origin) {
			answer := func(line, host string) string {
				c := reached(t, at, "http/1.1")
				if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\n%s\r\n\r\n", line, host); err != nil {
					t.Fatal(err)
				}
				a := webtest.ReadAnswer(bufio.NewReader(c))
				if a == nil {
					return "nothing"
				}
				return fmt.Sprint(a.Status, fields(a), string(a.Content))
			}
			own := answer(page.target, "Host: www.example")
			if !strings.HasPrefix(own, "200") {
				t.Fatalf("%s by %s: %s", what, name, own)
			}
			for _, host := range []string{"elsewhere.example", "www.example:8443", "127.0.0.1", "[::1]:80", "WWW.EXAMPLE", "www.example.", strings.Repeat("a", 5000), ""} {
				if got := answer(page.target, "Host: "+host); got != own {
					t.Errorf("%s by %s for %.40q: %s\nwant %s", what, name, host, got, own)
				}
			}
			for _, base := range []string{"http://elsewhere.example", "https://elsewhere.example:1", "http://a@www.example"} {
				if got := answer(base+page.target, "Host: www.example"); got != own {
					t.Errorf("%s by %s at %s: %s\nwant %s", what, name, base, got, own)
				}
			}
		}
	}
}

// Many requests at once are answered one after the other, and what is no request ends the connection with an error, as with any web server.
func TestPipelined(t *testing.T) {
	const many = 1000
	for name, at := range inFront(t, "") {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := reached(t, at, "http/1.1")
			go func() {
				_, _ = io.WriteString(c, strings.Repeat("GET /about HTTP/1.1\r\nHost: www.example\r\n\r\n", many)+"\x00\xff garbage\r\n\r\nGET /about HTTP/1.1\r\nHost: a\r\n\r\n")
			}()
			in := bufio.NewReader(c)
			for n := range many {
				if a := webtest.ReadAnswer(in); a == nil || a.StatusCode != 200 || !bytes.Contains(a.Content, []byte("never changes")) {
					t.Fatalf("answer %d is %+v", n, a)
				}
			}
			if a := webtest.ReadAnswer(in); a == nil || a.StatusCode != 400 {
				t.Errorf("garbage is answered with %+v", a)
			}
			if a := webtest.ReadAnswer(in); a != nil {
				t.Errorf("after garbage comes %+v", a)
			}
			if after := exchangeWith(t, at, "GET", "/about", nil, nil); !strings.HasPrefix(after, "200") {
				t.Errorf("another visitor gets %s", after)
			}
		})
	}
}

// endless is a body without end. It gives up with an error that tests can tell.
type endless struct {
	begin *bytes.Reader // what is said once
	again []byte        // and over and over
	read  int
}

func (e *endless) Read(b []byte) (n int, err error) {
	switch {
	case e.read > 64<<20:
		return 0, errEndless
	case e.begin.Len() > 0:
		n, _ = e.begin.Read(b)
	default:
		n = copy(b, e.again[e.read%len(e.again):])
	}
	e.read += n
	return n, nil
}

var errEndless = fmt.Errorf("it read on")

// A client gives up a body that does not end, whatever it is packed in.
func TestEndlessAnswers(t *testing.T) {
	packed := func(b []byte) []byte { return pack(b) }
	zeros := packed(make([]byte, 8<<20))
	head := []byte{0x1f, 0x8b, 8, 8, 0, 0, 0, 0, 0, 0}   // of gzip, with a name
	stored := []byte{0, 0xff, 0xff, 0, 0}                // a block of 65,535 bytes that are not compressed
	stored = append(stored, make([]byte, 65535)...)      // goes on
	empty := packed(nil)                                 // a member of gzip without content
	long := append(bytes.Clone(zeros[:len(zeros)-8]), 0) // the end is missing
	for what, body := range map[string]struct {
		coding       string
		begin, again []byte
	}{
		"plain":           {"", nil, []byte("all")},
		"zeros":           {"gzip", nil, zeros},
		"a name":          {"gzip", head, []byte("name")},
		"stored":          {"gzip", []byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0}, stored},
		"empty":           {"gzip", nil, empty},
		"one that is cut": {"gzip", nil, long},
	} {
		f := factoryOf(t, cover.Options{})
		for _, it := range f.items {
			client, _, err := f.Client()
			if err != nil {
				t.Fatal(err)
			}
			tab := client.(*tab)
			tab.feed, tab.visit = newVeiled(1, 2), newVisit(f.catalogue)
			in := &endless{begin: bytes.NewReader(body.begin), again: body.again}
			r := &http.Response{StatusCode: it.Status, Header: http.Header{"Content-Encoding": {body.coding}}, Body: io.NopCloser(in)}
			err = tab.answer(&flight{item: it}, r)
			if most := len(it.Body) + 2*it.down + mostSlack + 4096; err == nil || err == errEndless || in.read > most+1 {
				t.Errorf("%s for %s: %d bytes of at most %d are read, %v", what, it.URL, in.read, most, err)
			}
		}
	}
	if r, err := gzip.NewReader(bytes.NewReader(zeros)); err != nil || r == nil {
		t.Fatal("the zeros are no gzip", err)
	}
}
