package site

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"heddle/observe"
	"heddle/observe/decrypt"
)

func conversations(t testing.TB) ([]observe.Conversation, decrypt.Keys) {
	t.Helper()
	f, err := os.Open("testdata/http2.pcap")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all, stopped, err := observe.Conversations(f)
	if err != nil || stopped != "" {
		t.Fatal(stopped, err)
	}
	keys, err := decrypt.ReadFiles("testdata/http2.keys")
	if err != nil {
		t.Fatal(err)
	}
	return all, keys
}

// A capture says the same of a visit as the browser itself: testdata/record.mjs made both of one visit of Chromium by HTTP/2.
func TestCaptureIsWhatTheBrowserSaw(t *testing.T) {
	f, err := os.Open("testdata/http2.har")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	want, _, err := ReadHAR(f, "")
	if err != nil {
		t.Fatal(err)
	}
	all, keys := conversations(t)
	got, skipped, err := ReadCapture(all, keys, "")
	if err != nil || len(skipped) > 0 {
		t.Fatal(err, skipped)
	}
	if d := cmp.Diff(told(want), told(got)); d != "" {
		t.Error(d)
	}
	for _, o := range got.Objects {
		if o.Encoding == "br" && (o.Wire <= 0 || o.Wire >= o.Size) {
			t.Errorf("%s: %d bytes on the wire of %d", o.URL, o.Wire, o.Size)
		}
	}
}

// told is what a site says but for times, for bytes on the wire, among which a browser counts headers of frames, for the order of
// requests, which a browser sends in another order than it makes them, and for the icon, of which no HTTP archive tells.
func told(s *Site) map[string]any {
	all := map[string]any{}
	for _, o := range s.Objects {
		header := slices.SortedFunc(slices.Values(o.Header), func(a, b Field) int { return strings.Compare(a.Name, b.Name) })
		if o.URL != "/favicon.ico" {
			all[o.URL] = []any{o.Method, o.Status, o.Type, header, o.Cookies, o.Encoding, o.Size, o.Varies, string(o.Body)}
		}
	}
	for i, p := range s.Pages {
		page := []string{s.Objects[p.Document].URL}
		for _, l := range p.Loads {
			if url := s.Objects[l.Object].URL; url != "/favicon.ico" {
				page = append(page, "loads "+url)
			}
		}
		for _, l := range p.Links {
			page = append(page, "links to "+s.Objects[l].URL)
		}
		slices.Sort(page)
		all[fmt.Sprintf("page %d", i)] = page
	}
	return all
}

func TestCaptureWithoutKeys(t *testing.T) {
	all, _ := conversations(t)
	_, skipped, err := ReadCapture(all, nil, "")
	if err == nil || skipped["or more, of connections that no key log opens"] != 2 {
		t.Error(skipped, err)
	}
}

// A capture that ends early gives what was whole, and says what was not.
func TestCaptureIsCut(t *testing.T) {
	all, keys := conversations(t)
	cut := 0
	const step = 11 // so that cuts fall at all places of the records, which are much longer
	for n := 0; n < len(all[1].Down); n += step {
		part := all[1]
		part.Down = part.Down[:n]
		s, skipped, err := ReadCapture([]observe.Conversation{part}, keys, "")
		cut += skipped["that the capture has no end of"]
		if err == nil && s.object(t, "/").Size == 0 {
			t.Fatalf("after %d bytes the page is empty", n)
		}
	}
	if cut == 0 {
		t.Error("nothing was cut off")
	}
}

// talk is what a client and the server of a handler say in HTTP/1.1, where 10 ms pass between a request and its answer.
func talk(t *testing.T, handler http.HandlerFunc, requests ...string) observe.Conversation {
	t.Helper()
	var c observe.Conversation
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, q := range requests {
		target, header, _ := strings.Cut(q, "\n")
		r := httptest.NewRequest("GET", "http://site.example"+target, nil)
		text := "GET " + target + " HTTP/1.1\r\nHost: site.example\r\n"
		for line := range strings.SplitSeq(header, "\n") {
			if line != "" {
				text += line + "\r\n"
				name, value, _ := strings.Cut(line, ": ")
				r.Header.Set(name, value)
			}
		}
		c.Up = append(c.Up, text+"\r\n"...)
		c.UpAt = append(c.UpAt, observe.Arrival{End: len(c.Up), At: at})
		w := httptest.NewRecorder()
		handler(w, r)
		answer := w.Result()
		answer.ContentLength = int64(w.Body.Len())
		out := bytes.NewBufferString("HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n")
		if err := answer.Write(out); err != nil {
			t.Fatal(err)
		}
		at = at.Add(10 * time.Millisecond)
		c.Down = append(c.Down, out.Bytes()...)
		c.DownAt = append(c.DownAt, observe.Arrival{End: len(c.Down), At: at})
	}
	return c
}

func TestCaptureOfHTTP1(t *testing.T) {
	c := talk(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("If-None-Match") != "":
			w.WriteHeader(http.StatusNotModified)
		case r.URL.Path == "/a.css":
			w.Header().Set("Content-Type", "text/css")
			w.Header().Set("ETag", `"1"`)
			fmt.Fprint(w, "a{}")
		case r.URL.Path == "/old":
			http.Redirect(w, r, "/", http.StatusMovedPermanently)
		default:
			w.Header().Set("Content-Type", "text/html")
			w.Header().Set("Set-Cookie", "id=0123456789; Path=/")
			fmt.Fprintf(w, "<a href=/>%s</a>", r.URL.Path)
		}
	}, "/old\nUpgrade-Insecure-Requests: 1", "/\nUpgrade-Insecure-Requests: 1", "/a.css", "/frame\nSec-Fetch-Dest: iframe", "/two\nUpgrade-Insecure-Requests: 1",
		"/a.css\nIf-None-Match: \"1\"", "/gone.js\nIf-None-Match: \"2\"", "/\nUpgrade-Insecure-Requests: 1\nIf-None-Match: \"3\"", "/late.js")
	c.Down = c.Down[:len(c.Down)-1]
	s, skipped, err := ReadCapture([]observe.Conversation{c}, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(Skipped{"that the browser had in its cache": 1, "that the capture has no end of": 1}, skipped); d != "" {
		t.Error(d)
	}
	var urls []string
	for _, o := range s.Objects {
		urls = append(urls, o.URL)
	}
	if d := cmp.Diff([]string{"/old", "/", "/a.css", "/frame", "/two"}, urls); d != "" {
		t.Error(d)
	}
	posted := talk(t, func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusNoContent) }, "/log")
	posted.Up = []byte("POST /log HTTP/1.1\r\nHost: site.example\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 3\r\n\r\na=1")
	with, _, err := ReadCapture([]observe.Conversation{c, posted}, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	if log := with.object(t, "/log"); string(log.Posted) != "a=1" {
		t.Errorf("%q", log.Posted)
	}
	pages := []Page{{1, []Load{{2, 10}, {3, 20}}, []int{}}, {4, []Load{{2, 10}}, []int{1}}, {1, []Load{}, []int{}}}
	if d := cmp.Diff(pages, s.Pages); d != "" {
		t.Error(d)
	}
	if home := s.object(t, "/"); home.WaitMS != 10 || len(home.Cookies) != 1 || home.Cookies[0] != (Cookie{"id", 10, "digits"}) {
		t.Errorf("%+v", home)
	}
	if s.Origin != "http://site.example" {
		t.Error(s.Origin)
	}
}

// said is what the ends of HTTP/2 say, where 10 ms pass between two frames.
type said struct{ observe.Conversation }

func (s *said) add(up bool, write func(*http2.Framer) error) {
	data, arrivals := &s.Down, &s.DownAt
	if up {
		data, arrivals = &s.Up, &s.UpAt
	}
	var frame bytes.Buffer
	if err := write(http2.NewFramer(&frame, nil)); err != nil {
		panic(err)
	}
	*data = append(*data, frame.Bytes()...)
	at := time.Date(2026, 3, 1, 12, 0, 0, (len(s.UpAt)+len(s.DownAt))*1e7, time.UTC)
	*arrivals = append(*arrivals, observe.Arrival{End: len(*data), At: at})
}

func (s *said) headers(up bool, id uint32, end bool, encoder *hpack.Encoder, into *bytes.Buffer, fields ...string) {
	into.Reset()
	for i := 0; i < len(fields); i += 2 {
		encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}) //nolint:errcheck // a buffer takes all
	}
	block := bytes.Clone(into.Bytes())
	s.add(up, func(f *http2.Framer) error {
		return f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndHeaders: true, EndStream: end})
	})
}

// Headers of 1xx come before the answer, a large table is used as the client permits, and frames after the end say nothing.
func TestCaptureOfHTTP2(t *testing.T) {
	s := &said{Conversation: observe.Conversation{Up: []byte(http2.ClientPreface)}}
	var up, down bytes.Buffer
	asks, answers := hpack.NewEncoder(&up), hpack.NewEncoder(&down)
	answers.SetMaxDynamicTableSizeLimit(1 << 16)
	answers.SetMaxDynamicTableSize(1 << 16)
	s.headers(true, 1, true, asks, &up, ":method", "GET", ":scheme", "https", ":authority", "site.example", ":path", "/", "sec-fetch-dest", "document")
	s.headers(false, 1, false, answers, &down, ":status", "103", "link", "</a.css>")
	s.headers(false, 1, false, answers, &down, ":status", "200", "content-type", "text/html")
	s.add(false, func(f *http2.Framer) error { return f.WriteData(1, false, []byte("<p>")) })
	s.add(false, func(f *http2.Framer) error { return f.WriteData(1, true, []byte("all")) })
	s.add(false, func(f *http2.Framer) error { return f.WriteData(1, true, []byte("more")) })
	s.headers(true, 3, false, asks, &up, ":method", "POST", ":scheme", "https", ":authority", "site.example", ":path", "/log", "content-type", "application/json")
	s.add(true, func(f *http2.Framer) error { return f.WriteData(3, false, []byte(`{"n":`)) })
	s.add(true, func(f *http2.Framer) error { return f.WriteData(3, true, []byte(`1}`)) })
	s.headers(false, 3, true, answers, &down, ":status", "204")
	got, skipped, err := ReadCapture([]observe.Conversation{s.Conversation}, nil, "")
	if err != nil || len(skipped) > 0 {
		t.Fatal(err, skipped)
	}
	if log := got.object(t, "/log"); string(log.Posted) != `{"n":1}` || log.Status != 204 {
		t.Errorf("%q, %+v", log.Posted, log)
	}
	o := got.Objects[0]
	if string(o.Body) != "<p>all" || o.Status != 200 || o.WaitMS != 20 || o.TakeMS != 20 || got.Origin != "http://site.example" {
		t.Errorf("%q, %+v", o.Body, o)
	}
}

func FuzzReadCapture(f *testing.F) {
	all, keys := conversations(f)
	client, server, err := decrypt.Open(all[1].Up, all[1].Down, keys)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(client, server)
	f.Add([]byte("GET / HTTP/1.1\r\nHost: a\r\nUpgrade-Insecure-Requests: 1\r\n\r\n"), []byte("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 3\r\n\r\n<p>"))
	f.Fuzz(func(t *testing.T, up, down []byte) {
		s, _, err := ReadCapture([]observe.Conversation{{Up: up, Down: down}}, nil, "")
		if err != nil {
			return
		}
		if err := s.check(); err != nil {
			t.Fatal(err)
		}
		if _, err := url.Parse(s.Origin); err != nil {
			t.Fatal(err)
		}
	})
}

// A body that is packed well is read no further than bodies may be long.
func TestPackedBomb(t *testing.T) {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	for range 4 {
		if _, err := w.Write(make([]byte, MaxBody)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	body, err := decoded(http.Header{"Content-Encoding": {"gzip"}}, packed.Bytes())
	if err != nil || len(body) != MaxBody+1 {
		t.Errorf("%d bytes come of %d, %v", len(body), packed.Len(), err)
	}
	capture := observe.Conversation{Up: []byte("GET / HTTP/1.1\r\nHost: a\r\nUpgrade-Insecure-Requests: 1\r\n\r\nGET /b HTTP/1.1\r\nHost: a\r\n\r\n"),
		Down: slices.Concat([]byte("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 3\r\n\r\n<p>"),
			fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n", packed.Len()), packed.Bytes())}
	s, skipped, err := ReadCapture([]observe.Conversation{capture}, nil, "")
	if err != nil || len(s.Objects) != 1 || len(skipped) == 0 {
		t.Errorf("a site with it: %+v, %v, %v", s, skipped, err)
	}
}
