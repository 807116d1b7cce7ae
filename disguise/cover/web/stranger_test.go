package web

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"heddle/disguise/carrier"
	"heddle/disguise/cover"
	"heddle/disguise/handshake"
	"heddle/internal/netutil"
)

// website serves the site on loopback to strangers only. It returns its address.
func website(t testing.TB, f *factory) string {
	t.Helper()
	return listen(t, func(ctx context.Context, c net.Conn) {
		f.Host(ctx, c, func([]byte) (cover.Gauge, cover.Cover, error) { return nil, nil, handshake.ErrStranger })
	})
}

func listen(t testing.TB, serve func(context.Context, net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	work.Go(func() {
		_ = netutil.Serve(ctx, l, func(c net.Conn) {
			work.Go(func() {
				defer c.Close()
				serve(ctx, c)
			})
		})
	})
	t.Cleanup(func() { cancel(); work.Wait() })
	return l.Addr().String()
}

// A website answers any HTTP client: one row for each feature.
func TestAWebsite(t *testing.T) {
	f := factoryOf(t, cover.Options{})
	at := website(t, f)
	about := string(f.exact["GET /about"].Body)
	for _, c := range []struct {
		what, method, target string
		header               http.Header
		status               int
		body                 string // "-" is any
		want                 http.Header
	}{
		{"a page", "GET", "/about", nil, 200, about, http.Header{"Etag": {`"about-7"`}, "Last-Modified": {"Mon, 05 Oct 2026 10:00:00 GMT"}, "Accept-Ranges": {"bytes"}, "Content-Type": {"text/html"}}},
		{"only its head", "HEAD", "/about", nil, 200, "", http.Header{"Content-Length": {fmt.Sprint(len(about))}, "Etag": {`"about-7"`}}},
		{"with an unknown query", "GET", "/about?utm=1", nil, 200, about, nil},
		{"with its ETag", "GET", "/about", http.Header{"If-None-Match": {`"about-7"`}}, 304, "", http.Header{"Etag": {`"about-7"`}}},
		{"with another ETag", "GET", "/about", http.Header{"If-None-Match": {`"about-8"`}}, 200, about, nil},
		{"unless it changed", "GET", "/about", http.Header{"If-Modified-Since": {"Mon, 05 Oct 2026 10:00:00 GMT"}}, 304, "", nil},
		{"only as it was", "GET", "/about", http.Header{"If-Match": {`"about-8"`}}, 412, "", nil},
		{"a range", "GET", "/about", http.Header{"Range": {"bytes=2-5"}}, 206, about[2:6], http.Header{"Content-Range": {fmt.Sprintf("bytes 2-5/%d", len(about))}}},
		{"the end", "GET", "/about", http.Header{"Range": {"bytes=-3"}}, 206, about[len(about)-3:], nil},
		{"a range of another version", "GET", "/about", http.Header{"Range": {"bytes=2-5"}, "If-Range": {`"about-8"`}}, 200, about, nil},
		{"beyond the end", "GET", "/about", http.Header{"Range": {"bytes=5000-"}}, 416, "-", nil},
		{"compressed", "GET", "/style.css", http.Header{"Accept-Encoding": {"gzip, deflate"}}, 200, "-", http.Header{"Content-Encoding": {"gzip"}, "Vary": {"Accept-Encoding"}}},
		{"not compressed", "GET", "/style.css", http.Header{"Accept-Encoding": {"gzip;q=0"}}, 200, string(f.exact["GET /style.css"].Body), http.Header{"Content-Encoding": nil}},
		{"nothing", "GET", "/nothing", nil, 404, string(f.lost.Body), http.Header{"Content-Type": {"text/html"}}},
		{"a wrong method", "DELETE", "/about", nil, 405, "-", http.Header{"Allow": {"GET, HEAD"}}},
		{"a cookie is set", "GET", "/", nil, 200, "-", http.Header{"Set-Cookie": {"-"}, "Etag": nil}},
		{"a cookie is known", "GET", "/", http.Header{"Cookie": {"session=1"}}, 200, "-", http.Header{"Set-Cookie": nil}},
		{"a range of what differs each time", "GET", "/", http.Header{"Range": {"bytes=0-3"}}, 200, "-", http.Header{"Accept-Ranges": nil}},
		{"without a token", "GET", "/api/state", nil, 200, "-", nil},
	} {
		t.Run(c.what, func(t *testing.T) {
			r, body := ask(t, at, c.method, c.target, c.header)
			if r.StatusCode != c.status || c.body != "-" && body != c.body {
				t.Errorf("%s, %q", r.Status, body)
			}
			for name, want := range c.want {
				if got := r.Header[name]; fmt.Sprint(got) != fmt.Sprint(want) && !(len(want) == 1 && want[0] == "-" && len(got) == 1) {
					t.Errorf("%s: %q, want %q", name, got, want)
				}
			}
		})
	}
}

func ask(t testing.TB, at, method, target string, header http.Header) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+at+target, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, values := range header {
		r.Header[name] = values
	}
	transport := &http.Transport{DisableCompression: true}
	defer transport.CloseIdleConnections()
	response, err := transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response, string(body)
}

// All that a stranger gets is the recorded site: the same bytes, or, for what differs at each visit, others of which a carrier says that
// only they differ. A request with tokens gets the same answer again.
func TestAStrangerGetsTheSite(t *testing.T) {
	f := factoryOf(t, cover.Options{})
	at := website(t, f)
	for _, it := range f.items {
		if it.Method != "GET" {
			continue
		}
		_, first := ask(t, at, "GET", it.URL, nil)
		_, again := ask(t, at, "GET", it.URL, nil)
		if it.down == 0 {
			if first != string(it.Body) || again != first {
				t.Errorf("%s differs from what was recorded", it.URL)
			}
			continue
		}
		if _, err := it.answer.Extract(it.Body, []byte(first)); err != nil || first == string(it.Body) {
			t.Errorf("%s: %v", it.URL, err)
		}
		if (first == again) != (it.url > 0) {
			t.Errorf("%s with %d bytes in its tokens: again the same is %v", it.URL, it.url, first == again)
		}
	}
}

// A browser of another make gets the site too.
func TestCurl(t *testing.T) {
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Skip("typed skip: no curl: apt-get install curl")
	}
	f := factoryOf(t, cover.Options{})
	at := website(t, f)
	out, err := exec.CommandContext(t.Context(), curl, "-sS", "--compressed", "--max-time", "60", "http://"+at+"/style.css", "http://"+at+"/about").Output()
	if want := string(f.exact["GET /style.css"].Body) + string(f.exact["GET /about"].Body); err != nil || string(out) != want {
		t.Errorf("%v: %q", err, out)
	}
}

// A link's client whose bytes change on the way, or are repeated, gets the site and nothing else from then on.
func TestChangedBytesGetTheSite(t *testing.T) {
	f := factoryOf(t, cover.Options{})
	it := f.hiding[lengthKey("POST", "/api/event")][0]
	post := func(hidden []byte) string {
		f.binding.apply(it.number, hidden)
		body, err := it.posted.Embed(it.Posted, hidden)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("POST /api/event HTTP/1.1\r\nHost: www.example\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	}
	whole := func() []byte { // a block of all that the request hides
		v := newVeiled(1, 2)
		b := make([]byte, it.body)
		if _, err := v.Fill(b); err != nil {
			t.Fatal(err)
		}
		return b
	}
	for _, c := range []struct {
		what string
		edit func([]byte) []byte
		took bool
	}{
		{"as it was sent", func(b []byte) []byte { return b }, true},
		{"the first bit", func(b []byte) []byte { b[0] ^= 0x80; return b }, false},
		{"the last bit", func(b []byte) []byte { b[len(b)-1] ^= 1; return b }, false},
		{"another block", func(b []byte) []byte { return noise(len(b)) }, false},
	} {
		t.Run(c.what, func(t *testing.T) {
			_, parameters, err := f.Client()
			if err != nil {
				t.Fatal(err)
			}
			shape, err := f.Server(parameters)
			if err != nil {
				t.Fatal(err)
			}
			feed := newVeiled(2, 1)
			feed.Send([]byte("this is for a client only"))
			at := listen(t, func(ctx context.Context, c net.Conn) {
				if err := shape.Carry(ctx, c, feed); err != nil && !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			})
			conn, err := net.Dial("tcp", at)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			in, opened := bufio.NewReader(conn), newHeads(parameters[9:])
			for round, hidden := range [][]byte{c.edit(whole()), noise(it.body)} {
				if _, err := io.WriteString(conn, post(hidden)); err != nil {
					t.Fatal(err)
				}
				r, err := http.ReadResponse(in, nil)
				if err != nil {
					t.Fatal(err)
				}
				body, err := io.ReadAll(r.Body)
				if err != nil || r.StatusCode != 200 {
					t.Fatal(r.Status, err)
				}
				payload, err := it.answer.Extract(it.Body, body)
				if err != nil {
					t.Fatalf("it is not the site's answer: %v", err)
				}
				if _, ours := opened.open(it.number, payload); ours != (c.took && round == 0) {
					t.Errorf("request %d: an answer for a client is %v", round, ours)
				}
			}
			if c.took != (feed.Unsent() == 0) {
				t.Errorf("%d bytes were not sent", feed.Unsent())
			}
		})
	}
}

// Requests that are received in any form hide only what the site's grammar has room for, and what they hide gives the same request again.
func FuzzMatch(f *testing.F) {
	c := factoryOf(f, cover.Options{}).catalogue
	for _, it := range c.items {
		f.Add(it.Method, it.URL, it.Posted)
	}
	f.Fuzz(func(t *testing.T, method, target string, body []byte) {
		it, hidden := c.match(method, target, body)
		if it == nil || len(hidden) == 0 {
			return
		}
		if len(hidden) != it.up() || it.Method != method {
			t.Fatalf("%d bytes in a request with room for %d", len(hidden), it.up())
		}
		if it.url > 0 {
			if again, err := carrier.Target.Embed([]byte(it.URL), hidden[:it.url]); err != nil || string(again) != target {
				t.Errorf("%q gives %q: %v", target, again, err)
			}
		}
		if it.body > 0 {
			if again, err := it.posted.Embed(it.Posted, hidden[it.url:]); err != nil || !bytes.Equal(again, body) {
				t.Errorf("%q gives %q: %v", body, again, err)
			}
		}
	})
}

// FuzzAnswer gives a client what a stranger makes of an answer. The client takes what the carrier finds in the whole body, and only if that
// begins with a head under the connection's key.
func FuzzAnswer(f *testing.F) {
	factory := factoryOf(f, cover.Options{})
	key := make([]byte, headKey)
	for _, it := range factory.items {
		f.Add(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%.2000s", len(it.Body), it.Body), it.number)
		if it.carries() > 0 && it.down < 4000 {
			whole := answerFor(f, it, newHeads(key))
			f.Add(whole, it.number)
			f.Add(whole+" ", it.number)
		}
		f.Add("HTTP/1.1 200 OK\r\n\r\n"+string(it.Body), it.number)
		f.Add("HTTP/1.1 200 OK\r\n\r\n"+string(it.Body)+" ", it.number)
		f.Add("HTTP/1.1 500 Broken\r\n\r\n"+string(it.Body), it.number)
	}
	f.Add("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n\x1f\x8b", 0)
	f.Fuzz(func(t *testing.T, answer string, number int) {
		if number < 0 || number >= len(factory.items) {
			return
		}
		it := factory.items[number]
		tab := &tab{factory: factory, heads: newHeads(key), feed: newVeiled(1, 2)}
		tab.visit = newVisit(factory.catalogue)
		r, err := http.ReadResponse(bufio.NewReader(strings.NewReader(answer)), &http.Request{Method: it.Method})
		if err != nil {
			return
		}
		one := &flight{item: it}
		err = tab.answer(one, r)
		got := tab.feed.(*veiled).Received()
		if (one.said != nil) != tab.known || len(got) > 0 && one.said == nil {
			t.Errorf("said %v, known %v, and %d bytes arrived", one.said, tab.known, len(got))
		}
		if err != nil || r.StatusCode == http.StatusNotModified {
			return
		}
		whole := wholeBody(t, answer, it)
		if it.down == 0 {
			if r.StatusCode != it.Status || it.Fresh() == "" && !bytes.Equal(whole, it.Body) {
				t.Errorf("the site's %s is taken to be %s %q", it.URL, r.Status, whole)
			}
			return
		}
		hidden, err := it.answer.Extract(it.Body, whole)
		if err != nil {
			t.Fatalf("an answer that is none of the site's is taken: %v", err)
		}
		if _, ours := newHeads(key).open(it.number, hidden); ours != tab.known || it.carries() == 0 && tab.known {
			t.Errorf("an answer for a client is %v, and is taken as one: %v", ours, tab.known)
		}
	})
}

// answerFor is an answer with a block for a client.
func answerFor(t testing.TB, it *item, heads *heads) string {
	t.Helper()
	hidden, feed := make([]byte, it.down), newVeiled(2, 1)
	feed.Send([]byte("for a client"))
	heads.seal(it.number, hidden, head{5, true})
	_, err := feed.Fill(hidden[headSize:])
	if err != nil {
		t.Fatal(err)
	}
	body, err := it.answer.Embed(it.Body, hidden)
	if err != nil {
		t.Fatal(err)
	}
	return "HTTP/1.1 200 OK\r\n\r\n" + string(body)
}

// wholeBody reads the body of an answer that the client took.
func wholeBody(t testing.TB, answer string, it *item) []byte {
	t.Helper()
	r, err := http.ReadResponse(bufio.NewReader(strings.NewReader(answer)), &http.Request{Method: it.Method})
	if err != nil {
		t.Fatal(err)
	}
	in := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		if in, err = gzip.NewReader(in); err != nil {
			t.Fatal(err)
		}
	}
	body, err := io.ReadAll(in)
	if err != nil {
		t.Fatal(err)
	}
	return body
}
