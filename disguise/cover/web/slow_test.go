package web

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"heddle/disguise/cover"
	"heddle/disguise/cover/covertest"
	"heddle/disguise/cover/web/browser"
	"heddle/disguise/cover/web/webtest"
	"heddle/disguise/handshake"
)

// slowly is how often a slow visitor sends a byte.
const slowly = 10 * time.Second

// visited has a stranger speak with a website by a connection in memory. It returns how long the website kept it.
func visited(t *testing.T, f *factory, protocol string, speak func(c net.Conn)) (kept time.Duration) {
	t.Helper()
	near, far := covertest.Pipe()
	began, ended := time.Now(), make(chan time.Duration, 1)
	go func() {
		f.Host(t.Context(), far, func([]byte) (cover.Gauge, cover.Cover, error) { return nil, nil, handshake.ErrStranger })
		far.Close()
		ended <- time.Since(began)
	}()
	c := net.Conn(near)
	if f.tls != nil {
		c = tls.Client(near, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{protocol}})
	}
	spoke := make(chan struct{})
	go func() {
		defer close(spoke)
		speak(c)
	}()
	select {
	case kept = <-ended:
		near.Close()
	case <-time.After(time.Hour):
		t.Error("it is kept for an hour")
		near.Close()
		kept = <-ended
	}
	<-spoke
	return kept
}

// drip sends something at once, and then a byte now and then, and reads what comes.
func drip(at string) func(net.Conn) {
	return func(c net.Conn) {
		if _, err := io.WriteString(c, at); err != nil {
			return
		}
		go io.Copy(io.Discard, c)
		for {
			time.Sleep(slowly)
			if _, err := c.Write([]byte("a")); err != nil {
				return
			}
		}
	}
}

// Visitors who are too slow, either way, lose their connection, and those who are fast enough get all of it.
func TestSlowVisitors(t *testing.T) {
	segment := func(f *factory) *item {
		for _, it := range f.items {
			if it.media() {
				return it
			}
		}
		return nil
	}
	get := func(f *factory) string {
		return fmt.Sprintf("GET %s HTTP/1.1\r\nHost: www.example\r\n\r\n", segment(f).URL)
	}
	reads := func(rate int, got *atomic.Int64) func(f *factory) func(net.Conn) {
		return func(f *factory) func(net.Conn) {
			return func(c net.Conn) {
				if _, err := io.WriteString(c, get(f)); err != nil {
					return
				}
				for b := make([]byte, max(1, rate)); rate > 0; {
					n, err := io.ReadFull(c, b)
					if got.Add(int64(n)); err != nil {
						return
					}
					time.Sleep(time.Second)
				}
			}
		}
	}
	for _, sealed := range []bool{false, true} {
		var slow, fast, none atomic.Int64
		for what, c := range map[string]struct {
			speak func(f *factory) func(net.Conn)
			least time.Duration // that it is kept
			more  time.Duration
			all   *atomic.Int64 // of the answer arrives
		}{
			"silence":     {func(*factory) func(net.Conn) { return drip("") }, headPatience, time.Second, nil},
			"a slow head": {func(*factory) func(net.Conn) { return drip("GET /about HTTP/1.1\r\nHost: a\r\nX: ") }, headPatience, time.Second, nil},
			"a slow body": {func(*factory) func(net.Conn) {
				return drip("POST /api/event HTTP/1.1\r\nHost: a\r\nContent-Length: 3000\r\n\r\n")
			}, bodyPatience, 2 * time.Second, nil},
			"reads nothing": {reads(0, &none), sendPatience, segmentTime, nil},
			"reads slowly":  {reads(sendRate/4, &slow), sendPatience, segmentTime, nil},
			"reads fast":    {reads(4*sendRate, &fast), 5 * time.Minute, 6 * time.Minute, &fast},
		} {
			t.Run(fmt.Sprintf("sealed %v/%s", sealed, what), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := factoryOf(t, cover.Options{})
					if sealed {
						_, f = sealedPair(t, cover.Life{})
					}
					if kept := visited(t, f, "http/1.1", c.speak(f)); kept < c.least || kept > c.least+c.more {
						t.Errorf("it is kept for %v, want %v to %v", kept, c.least, c.least+c.more)
					}
					if c.all != nil && c.all.Load() < webtest.Segment {
						t.Errorf("%d bytes arrived", c.all.Load())
					}
				})
			})
		}
	}
}

// segmentTime is how long an answer with a media segment may take beyond [sendPatience], and the connection to close.
const segmentTime = (webtest.Segment/sendRate + 20) * time.Second

// frames begins HTTP/2 and sends a request.
func frames(c net.Conn, windows bool, fields ...string) (*http2.Framer, *hpack.Encoder, *bytes.Buffer, error) {
	if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
		return nil, nil, nil, err
	}
	f := http2.NewFramer(c, bufio.NewReader(c))
	settings := []http2.Setting{}
	if windows {
		settings = append(settings, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30})
	}
	if err := f.WriteSettings(settings...); err != nil {
		return nil, nil, nil, err
	}
	if windows {
		if err := f.WriteWindowUpdate(0, 1<<30); err != nil {
			return nil, nil, nil, err
		}
	}
	var block bytes.Buffer
	return f, hpack.NewEncoder(&block), &block, nil
}

// asking writes the headers of a request.
func asking(e *hpack.Encoder, block *bytes.Buffer, method, target string) []byte {
	block.Reset()
	for _, f := range [][2]string{{":method", method}, {":scheme", "https"}, {":authority", "www.example"}, {":path", target}} {
		_ = e.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}) // a buffer takes all
	}
	return block.Bytes()
}

// The same over HTTP/2, whose connection ends when it has been idle for as long as others.
func TestSlowVisitorsOfHTTP2(t *testing.T) {
	for what, c := range map[string]struct {
		windows, reads bool
		method         string
	}{"reads nothing": {true, false, "GET"}, "opens no window": {false, true, "GET"}, "sends no body": {true, true, "POST"}} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, f := sealedPair(t, cover.Life{})
				target := "/api/event"
				for _, it := range f.items {
					if c.method == "GET" && it.media() {
						target = it.URL
					}
				}
				kept := visited(t, f, "h2", func(conn net.Conn) {
					fr, e, block, err := frames(conn, c.windows)
					if err != nil {
						t.Error(err)
						return
					}
					if err := fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: asking(e, block, c.method, target), EndHeaders: true, EndStream: c.method == "GET"}); err != nil {
						t.Error(err)
					}
					if c.reads {
						_, _ = io.Copy(io.Discard, conn)
					}
				})
				if most := sendPatience + segmentTime + f.quiet + time.Minute; kept > most {
					t.Errorf("it is kept for %v, more than %v", kept, most)
				}
			})
		})
	}
}

// counted holds all requests that it gets, and counts them.
type counted struct {
	hold      chan struct{}
	now, most atomic.Int32
}

func (c *counted) ServeHTTP(http.ResponseWriter, *http.Request) {
	if n := c.now.Add(1); n > c.most.Load() {
		c.most.Store(n)
	}
	<-c.hold
	c.now.Add(-1)
}

// A flood of what HTTP/2 has ends its connection soon, and no more requests are served at a time than the website allows, whether they are reset or not.
func TestFloodsOfHTTP2(t *testing.T) {
	_, f := sealedPair(t, cover.Life{})
	request := func(fr *http2.Framer, n int, e *hpack.Encoder, block *bytes.Buffer) error {
		return fr.WriteHeaders(http2.HeadersFrameParam{StreamID: uint32(2*n + 1), BlockFragment: asking(e, block, "GET", "/about"), EndHeaders: true, EndStream: true})
	}
	for what, c := range map[string]struct {
		send  func(fr *http2.Framer, n int, e *hpack.Encoder, block *bytes.Buffer) error
		reads bool
		times int
		ends  bool // the connection
	}{
		"parts of a head": {func(fr *http2.Framer, n int, e *hpack.Encoder, block *bytes.Buffer) error {
			if n == 0 {
				return fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: asking(e, block, "GET", "/about")})
			}
			block.Reset()
			_ = e.WriteField(hpack.HeaderField{Name: "x", Value: strings.Repeat("~", 1000), Sensitive: true})
			return fr.WriteContinuation(1, false, block.Bytes())
		}, true, 1000, true},
		"requests that are reset": {func(fr *http2.Framer, n int, e *hpack.Encoder, block *bytes.Buffer) error {
			if err := request(fr, n, e, block); err != nil {
				return err
			}
			return fr.WriteRSTStream(uint32(2*n+1), http2.ErrCodeCancel)
		}, true, 20 * mostStreams, false},
		"requests": {request, true, 20 * mostStreams, false},
		"pings that nobody reads": {func(fr *http2.Framer, n int, _ *hpack.Encoder, _ *bytes.Buffer) error {
			return fr.WritePing(false, [8]byte{byte(n)})
		}, false, 20_000, true},
	} {
		t.Run(what, func(t *testing.T) {
			near, far := net.Pipe()
			served, ended := &counted{hold: make(chan struct{})}, make(chan struct{})
			go func() {
				defer close(ended)
				f.converse(t.Context(), tls.Server(far, f.tls), served)
			}()
			conn := tls.Client(near, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
			fr, e, block, err := frames(conn, true)
			if err != nil {
				t.Fatal(err)
			}
			if c.reads {
				go io.Copy(io.Discard, conn)
			}
			taken := 0
			for ; taken < c.times && err == nil; taken++ {
				err = c.send(fr, taken, e, block)
			}
			if c.ends && err == nil {
				t.Errorf("it takes %d of them", taken)
			}
			if n := served.most.Load(); n > mostStreams {
				t.Errorf("%d requests are served at a time", n)
			}
			close(served.hold)
			near.Close()
			<-ended
		})
	}
}

// roomy is a pipe with room for what the other end does not read: both ends of a handshake that fails write at the same time.
func roomy() (a, b *covertest.Conn) {
	a, near := covertest.Pipe()
	far, b := covertest.Pipe()
	pump := func(from, to *covertest.Conn) {
		parts := make(chan []byte, 1<<10)
		go func() {
			defer close(parts)
			for {
				part := make([]byte, partSize)
				n, err := from.Read(part)
				if err != nil {
					return
				}
				parts <- part[:n]
			}
		}()
		for part := range parts {
			if _, err := to.Write(part); err != nil {
				break
			}
		}
		to.Close()
		from.Close()
		for range parts { // until the reader ends
		}
	}
	go pump(near, far)
	go pump(far, near)
	return a, b
}

// Visitors see a certificate that expired meanwhile, and the operator is told. A client says so, unless it has a pin, which takes the place of the
// certificate's dates.
func TestCertificateExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, bridge := sealedPair(t, cover.Life{})
		leaf, err := bridge.tls.GetCertificate(nil)
		if err != nil {
			t.Fatal(err)
		}
		roots := x509.NewCertPool()
		roots.AddCert(leaf.Leaf)
		trusting := *client
		trusting.secure = &secure{hello: client.hello, server: browser.Server{Name: "www.example", Roots: roots}}
		var log bytes.Buffer
		before := slog.Default()
		defer slog.SetDefault(before)
		slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
		// link carries some bytes, and returns how a client's end failed.
		link := func(f *factory) error {
			near, far := roomy()
			s := startOver(t, f, bridge, near, far, 1)
			s.server.Send([]byte("hello"))
			if s.client.Await(s.ctx, 5) {
				s.stop(t)
				return nil
			}
			defer s.cancel()
			return errors.Join(<-s.ended, <-s.ended)
		}
		for _, f := range []*factory{client, &trusting} {
			if err := link(f); err != nil || log.Len() > 0 {
				t.Errorf("before: %v, %s", err, &log)
			}
		}
		time.Sleep(25 * time.Hour)
		if err := link(&trusting); err == nil || !strings.Contains(err.Error(), "expired") {
			t.Errorf("a client says %v", err)
		}
		if err := link(client); err != nil {
			t.Errorf("a client with a pin: %v", err)
		}
		if !strings.Contains(log.String(), "has expired") || !strings.Contains(log.String(), "renew it") {
			t.Errorf("the operator is told %q", &log)
		}
	})
}
