package web

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"heddle/disguise/cover"
	"heddle/disguise/handshake"
	"heddle/internal/tcptest"
)

// ownSite is an operator's site: pages with validators, one for each of what a server can do.
func ownSite(t testing.TB) *httptest.Server {
	t.Helper()
	modified := time.Date(2026, 10, 5, 10, 0, 0, 0, time.UTC)
	mux := http.NewServeMux()
	page := func(path, text string) {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("ETag", `"own"`)
			w.Header().Set("Server", "own/1.0")
			http.ServeContent(w, r, "page.html", modified, strings.NewReader(text))
		})
	}
	page("/own", "a page of the operator")
	page("/about", "another page than the recorded one")
	mux.HandleFunc("/said", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %s %d %v %q %q %q", r.Method, r.Host, r.RequestURI, len(body), err, r.Header["X-Forwarded-For"], r.Header["X-Real-Ip"], r.Header["Accept-Encoding"])
	})
	mux.HandleFunc("/untyped", func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Content-Type"], w.Header()["Date"] = nil, nil
		_, _ = w.Write([]byte("<html>"))
	})
	mux.HandleFunc("/upgrade", func(w http.ResponseWriter, r *http.Request) {
		c, in, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		fmt.Fprintf(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", r.Header.Get("Upgrade"))
		_, _ = io.Copy(c, in)
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

// inFront returns the addresses of a bridge in front of a site, or of none, for strangers: with each cover, and behind another web server.
func inFront(t *testing.T, origin string) map[string]string {
	t.Helper()
	var u *url.URL // without a site the bridge shows the recorded one
	var err error
	if origin != "" {
		if u, err = url.Parse(origin); err != nil {
			t.Fatal(err)
		}
	}
	args := certified(t, "www.example")
	secure, err := cover.New(NameTLS, cover.Options{Bridge: true, Front: cover.Front{Origin: u}, Args: args})
	if err != nil {
		t.Fatal(err)
	}
	behind, err := cover.New(NameTLS, cover.Options{Bridge: true, Front: cover.Front{Origin: u, Behind: true}, Args: map[string]string{"site": args["site"]}})
	if err != nil {
		t.Fatal(err)
	}
	refuse := func([]byte) (cover.Gauge, cover.Cover, error) { return nil, nil, handshake.ErrStranger }
	return map[string]string{
		"http":  "http://" + website(t, factoryOf(t, cover.Options{Front: cover.Front{Origin: u}})),
		"https": "https://" + website(t, secure.(*factory)),
		"behind": "http://" + listen(t, func(ctx context.Context, c net.Conn) {
			behind.(cover.Fronted).Behind(ctx, c, func(net.Addr) (cover.Enter, func()) { return refuse, func() {} })
		}),
	}
}

// reached connects to a website.
func reached(t *testing.T, at, protocol string) net.Conn {
	t.Helper()
	u, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", u.Host)
	if err != nil {
		t.Fatal(err)
	}
	if u.Scheme == "https" {
		c = tls.Client(c, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{protocol}})
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// exchangeWith sends a request, and returns the answer as a text, without what differs from time to time.
func exchangeWith(t *testing.T, at, method, target string, header http.Header, body io.Reader) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, at+target, body)
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(r.Header, header)
	r.Host = "www.example"
	transport := &http.Transport{DisableCompression: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	answer, err := transport.RoundTrip(r)
	if err != nil {
		return err.Error()
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	date := answer.Header["Date"]
	answer.Header.Del("Date")
	return fmt.Sprintf("%s, %d headers of dates, %v, %d bytes: %q, %v", answer.Status, len(date), answer.Header, answer.ContentLength, text, err)
}

// A stranger gets of the operator's site what the site itself would answer.
func TestOriginAnswersStrangers(t *testing.T) {
	own := ownSite(t)
	bridges := inFront(t, own.URL)
	for _, c := range []struct {
		what, method, target string
		header               http.Header
		body                 func() io.Reader
	}{
		{"a page", "GET", "/own", nil, nil},
		{"its head", "HEAD", "/own", nil, nil},
		{"a range", "GET", "/own", http.Header{"Range": {"bytes=2-5"}}, nil},
		{"beyond the end", "GET", "/own", http.Header{"Range": {"bytes=500-"}}, nil},
		{"with its ETag", "GET", "/own", http.Header{"If-None-Match": {`"own"`}}, nil},
		{"as it was", "GET", "/own", http.Header{"If-Modified-Since": {"Mon, 05 Oct 2026 10:00:00 GMT"}}, nil},
		{"nothing", "GET", "/nothing", nil, nil},
		{"without a type", "GET", "/untyped", nil, nil},
		{"a form", "POST", "/own", nil, func() io.Reader { return strings.NewReader("a=b") }},
	} {
		var body, again io.Reader
		if c.body != nil {
			body = c.body()
		}
		want := exchangeWith(t, own.URL, c.method, c.target, c.header, body)
		for name, at := range bridges {
			if c.body != nil {
				again = c.body()
			}
			if got := exchangeWith(t, at, c.method, c.target, c.header, again); got != want {
				t.Errorf("%s by %s:\n%s\nwant\n%s", c.what, name, got, want)
			}
		}
	}
	for name, at := range bridges {
		got, of := exchangeWith(t, at, "GET", "/about", nil, nil), "another page than the recorded one"
		if name == Name { // where a client's answers are seen, and have to be those of strangers
			of = "This is a page that never changes."
		}
		if !strings.Contains(got, of) {
			t.Errorf("%s answers /about by %s", name, got)
		}
		if got := exchangeWith(t, at, "GET", "/about?unknown", nil, nil); !strings.Contains(got, "another page") {
			t.Errorf("%s answers a query by %s", name, got)
		}
	}
}

// The origin gets what the visitor sent, and only the bridge's word for who she is.
func TestOriginIsAskedAsByTheVisitor(t *testing.T) {
	own := ownSite(t)
	lies := http.Header{"X-Forwarded-For": {"203.0.113.9"}, "X-Real-Ip": {"203.0.113.9"}}
	large := bytes.Repeat([]byte("a"), 3*mostBody)
	for name, at := range inFront(t, own.URL) {
		known := `["127.0.0.1"] []`
		if name == "behind" { // it is the other web server that says so
			known = `["203.0.113.9"] ["203.0.113.9"]`
		}
		for what, c := range map[string]struct {
			method string
			body   io.Reader
			length int
		}{
			"no body":               {"GET", nil, 0},
			"a body":                {"POST", bytes.NewReader(large[:1000]), 1000},
			"a large one":           {"PUT", bytes.NewReader(large), len(large)},
			"one of unknown length": {"PUT", io.MultiReader(bytes.NewReader(large)), len(large)},
		} {
			got := exchangeWith(t, at, c.method, "/said?a=%2F;b&c", lies, c.body)
			text := fmt.Sprintf("%s www.example /said?a=%%2F;b&c %d <nil> %s []", c.method, c.length, known)
			if !strings.Contains(got, fmt.Sprintf("%q", text)) {
				t.Errorf("%s, %s: %s\nwant %s", name, what, got, text)
			}
		}
	}
}

// Protocols that begin in HTTP/1.1 go on, such as that of WebSockets.
func TestOriginMaySwitchProtocols(t *testing.T) {
	for name, at := range inFront(t, ownSite(t).URL) {
		c := reached(t, at, "http/1.1")
		fmt.Fprint(c, "GET /upgrade HTTP/1.1\r\nHost: www.example\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		in := bufio.NewReader(c)
		answer, err := http.ReadResponse(in, nil)
		if err != nil || answer.StatusCode != http.StatusSwitchingProtocols {
			t.Errorf("%s: %+v, %v", name, answer, err)
			continue
		}
		for _, word := range []string{"one\n", "two\n"} {
			fmt.Fprint(c, word)
			if got, err := in.ReadString('\n'); got != word {
				t.Errorf("%s: %q, %v", name, got, err)
			}
		}
	}
}

// A site that is down is what its visitors see, whether they ask for what is recorded or not.
func TestOriginIsDown(t *testing.T) {
	for name, at := range inFront(t, "http://"+tcptest.Nobody(t).String()) {
		for _, target := range []string{"/own", "/about", "/"} {
			got := exchangeWith(t, at, "GET", target, nil, nil)
			if recorded := name == Name && target != "/own"; strings.HasPrefix(got, "502 Bad Gateway, 1 headers") == recorded {
				t.Errorf("%s %s: %s", name, target, got)
			}
		}
	}
}

// A bridge is no proxy for anybody.
func TestOriginIsNoProxy(t *testing.T) {
	other := ownSite(t)
	for name, at := range inFront(t, "http://"+tcptest.Nobody(t).String()) {
		if name == NameTLS {
			continue
		}
		for _, line := range []string{"GET " + other.URL + "/own", "CONNECT " + strings.TrimPrefix(other.URL, "http://"), "OPTIONS *"} {
			c, err := net.Dial("tcp", strings.TrimPrefix(at, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(c, "%s HTTP/1.1\r\nHost: www.example\r\nConnection: close\r\n\r\n", line)
			text, err := io.ReadAll(c)
			c.Close()
			if err != nil || bytes.Contains(text, []byte("operator")) || !bytes.HasPrefix(text, []byte("HTTP/1.1 502")) && !bytes.HasPrefix(text, []byte("HTTP/1.1 400")) {
				t.Errorf("%s, %s: %q, %v", name, line, text, err)
			}
		}
	}
}

func TestOriginIsLate(t *testing.T) {
	o := newOrigin(cover.Front{})
	for err, want := range map[error]int{os.ErrDeadlineExceeded: http.StatusGatewayTimeout, io.ErrUnexpectedEOF: http.StatusBadGateway} {
		w := httptest.NewRecorder()
		if o.failed(w, httptest.NewRequest("GET", "/", nil), err); w.Code != want {
			t.Errorf("%v: %d, want %d", err, w.Code, want)
		}
	}
}
