package upstream_test

import (
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"sync/atomic"
	"testing"

	"heddle/internal/upstream"
)

// raw lets a function write what a server of HTTP never would.
func raw(t *testing.T, answer func(c io.ReadWriter, r *http.Request)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		answer(struct {
			io.Reader
			io.Writer
		}{buffered, c}, r)
	})
}

// server answers each request with an answer too many, which the next request must not get.
func server(t *testing.T, start func(*httptest.Server)) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(raw(t, func(c io.ReadWriter, r *http.Request) {
		first := "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na"
		if r.Method == http.MethodHead {
			first = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n"
		}
		io.WriteString(c, first+"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged")
		io.Copy(io.Discard, c)
	}))
	start(s)
	t.Cleanup(s.Close)
	return s
}

// An answer too many is nobody's, however soon the next request comes.
func TestAnswerTooMany(t *testing.T) {
	out := log.Writer()
	log.SetOutput(io.Discard) // net/http says what it drops
	t.Cleanup(func() { log.SetOutput(out) })
	for _, by := range []struct {
		name     string
		start    func(*httptest.Server)
		requests int // several times as many as it takes without the wait
	}{{"http", (*httptest.Server).Start, 1000}, {"https", (*httptest.Server).StartTLS, 300}} {
		t.Run(by.name, func(t *testing.T) {
			s := server(t, by.start)
			c := client(t, s)
			for i := range by.requests {
				method, want := http.MethodGet, "a"
				if i%2 == 1 {
					method, want = http.MethodHead, ""
				}
				r, err := c.Do(request(t, method, s.URL))
				if err != nil {
					t.Fatal(err)
				}
				text, err := io.ReadAll(r.Body)
				r.Body.Close()
				if err != nil || string(text) != want {
					t.Fatalf("%s %d: %q, %v", method, i, text, err)
				}
			}
		})
	}
}

// A connection whose answers are whole is used again, by HTTP/1.1 and HTTP/2.
func TestKeepsConnections(t *testing.T) {
	for _, version := range []int{1, 2} {
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Proto) }))
		s.EnableHTTP2 = version == 2
		var dialled atomic.Int32
		s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
			if state == http.StateNew {
				dialled.Add(1)
			}
		}
		s.StartTLS()
		t.Cleanup(s.Close)
		c := client(t, s)
		for range 50 {
			r, err := c.Do(request(t, http.MethodGet, s.URL))
			if err != nil {
				t.Fatal(err)
			}
			io.Copy(io.Discard, r.Body)
			r.Body.Close()
			if r.ProtoMajor != version {
				t.Fatalf("%s, not HTTP/%d", r.Proto, version)
			}
		}
		if n := dialled.Load(); n != 1 {
			t.Errorf("HTTP/%d: %d connections", version, n)
		}
	}
}

// A client of an upgraded connection may end its direction first, and still gets what the server says then.
func TestHalfClose(t *testing.T) {
	s := httptest.NewServer(raw(t, func(c io.ReadWriter, _ *http.Request) {
		io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		said, _ := io.ReadAll(c)
		c.Write(said)
	}))
	t.Cleanup(s.Close)
	r := request(t, http.MethodGet, s.URL)
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", "echo")
	a, err := client(t, s).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	both := a.Body.(interface {
		io.ReadWriter
		CloseWrite() error
	})
	io.WriteString(both, "said")
	if err := both.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if heard, err := io.ReadAll(both); err != nil || string(heard) != "said" {
		t.Errorf("%q, %v", heard, err)
	}
}

// A proxy notes interim answers by a trace of its own request. It never hears of another visitor's.
func TestInterimAnswersOfOthers(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusEarlyHints) }))
	t.Cleanup(s.Close)
	c := client(t, s)
	var heard [3]int
	for i := range heard {
		r := request(t, http.MethodGet, s.URL)
		a, err := c.Do(r.WithContext(httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
			Got1xxResponse: func(int, textproto.MIMEHeader) error { heard[i]++; return nil },
		})))
		if err != nil {
			t.Fatal(err)
		}
		a.Body.Close()
	}
	if heard != [3]int{1, 1, 1} {
		t.Errorf("of three visitors with one interim answer each, each heard %v", heard)
	}
}

// client gives a client of a server, by the transport under test.
func client(t *testing.T, s *httptest.Server) *http.Client {
	by := s.Client().Transport.(*http.Transport).Clone()
	by.DialContext = (&net.Dialer{}).DialContext
	c := &http.Client{Transport: upstream.New(by)}
	t.Cleanup(c.CloseIdleConnections)
	return c
}

func request(t *testing.T, method, url string) *http.Request {
	t.Helper()
	r, err := http.NewRequest(method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
