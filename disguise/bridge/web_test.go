package bridge

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"heddle/disguise/client"
	"heddle/disguise/cover"
	"heddle/disguise/cover/random"
	"heddle/disguise/cover/web"
	"heddle/disguise/cover/web/browser"
	"heddle/disguise/cover/web/webtest"
	"heddle/disguise/handshake"
	"heddle/internal/polltest"
	"heddle/internal/tcptest"
	"heddle/lab/peer"
	"heddle/path"
)

// startWeb is a bridge that is the website of the tests, and the options of its clients. name is that of the cover.
func startWeb(t testing.TB, name string, edit func(*Options)) (*setup, client.Options) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "site.db")
	if err := webtest.Site().Write(file); err != nil {
		t.Fatal(err)
	}
	return startSite(t, name, file, edit)
}

// startSite is startWeb with a recorded site.
func startSite(t testing.TB, name, file string, edit func(*Options)) (*setup, client.Options) {
	t.Helper()
	args := map[string]string{"site": file}
	theirs := maps.Clone(args)
	if name == web.NameTLS {
		theirs["certificate"], theirs["key"], args["pin"] = certified(t, t.TempDir())
		theirs["pin"] = args["pin"]
	}
	covers := func(key handshake.PublicKey, bridge bool, args map[string]string) cover.Factory {
		f, err := cover.New(name, cover.Options{Seed: key[:], Bridge: bridge, Args: args})
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	s := start(t, func(o *Options) {
		o.Covers = map[byte]cover.Factory{numbers[name]: covers(o.Key, true, theirs)}
		if edit != nil {
			edit(o)
		}
	})
	o := s.options()
	o.Covers, o.Connections = only(covers(s.line.Key, false, args)), cover.Connections(name)
	return s, o
}

// certified makes a certificate for the site of the tests.
func certified(t testing.TB, dir string) (certificate, key, pin string) {
	t.Helper()
	certificate, key = filepath.Join(dir, "certificate.pem"), filepath.Join(dir, "key.pem")
	if err := peer.SelfSigned(certificate, key, []string{"www.example"}, nil); err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	sum := browser.PinOf(pair.Leaf)
	return certificate, key, base64.RawURLEncoding.EncodeToString(sum[:])
}

var numbers = map[string]byte{web.Name: web.Number, web.NameTLS: web.NumberTLS}

// inBoth runs a test for a website without and with TLS.
func inBoth(t *testing.T, test func(t *testing.T, name string)) {
	t.Parallel()
	for name := range numbers {
		t.Run(name, func(t *testing.T) { t.Parallel(); test(t, name) })
	}
}

// wire is a man in the middle, who delays all by some time and keeps what he saw.
type wire struct {
	at    netip.AddrPort
	delay time.Duration

	mu       sync.Mutex
	up, down []*bytes.Buffer // by connection
}

func startWire(t testing.TB, to netip.AddrPort, delay time.Duration) *wire {
	t.Helper()
	w := &wire{delay: delay}
	w.at = tcptest.Serve(t, func(c *net.TCPConn) {
		far, err := net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(to))
		if err != nil {
			return
		}
		defer far.Close()
		up, down := &bytes.Buffer{}, &bytes.Buffer{}
		w.mu.Lock()
		w.up, w.down = append(w.up, up), append(w.down, down)
		w.mu.Unlock()
		var work sync.WaitGroup
		work.Go(func() { w.pass(c, far, up) })
		work.Go(func() { w.pass(far, c, down) })
		work.Wait()
	})
	return w
}

// pass copies one direction. It queues without a bound, so no packet is lost.
func (w *wire) pass(from, to *net.TCPConn, seen *bytes.Buffer) {
	type part struct {
		at   time.Time
		data []byte
	}
	parts := make(chan part, 1<<16)
	go func() {
		defer close(parts)
		for {
			b := make([]byte, 32<<10)
			n, err := from.Read(b)
			if n > 0 {
				w.mu.Lock()
				seen.Write(b[:n])
				w.mu.Unlock()
				parts <- part{time.Now().Add(w.delay), b[:n]}
			}
			if err != nil {
				return
			}
		}
	}()
	for p := range parts {
		time.Sleep(time.Until(p.at))
		if _, err := to.Write(p.data); err != nil {
			break
		}
	}
	_ = to.CloseWrite()
	for range parts { // nothing waits for room
	}
}

// seen returns how many bytes passed.
func (w *wire) seen() (up, down int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.up {
		up, down = up+w.up[i].Len(), down+w.down[i].Len()
	}
	return up, down
}

func TestLinkThroughAWebsite(t *testing.T) {
	inBoth(t, func(t *testing.T, name string) {
		s, o := startWeb(t, name, func(o *Options) { o.Target = to(tcptest.Serve(t, tcptest.Echo)) })
		c := opened(t, o)
		exchange(t, c, 300_000)
		<-c.Done()
		polltest.Await(t, "the link is forgotten", func() bool { return len(s.Status().Links) == 0 })
	})
}

// The site that comes with Heddle carries a stream both ways, more than its largest page does.
func TestLinkThroughTheShippedSite(t *testing.T) {
	inBoth(t, func(t *testing.T, name string) {
		_, o := startSite(t, name, "../../dist/site-docs.db", func(o *Options) { o.Target = to(tcptest.Serve(t, tcptest.Echo)) })
		c := opened(t, o)
		exchange(t, c, 300_000)
		<-c.Done()
	})
}

// A link uses several connections, of which each has a hello of its own.
func TestConnectionsOfAWebsite(t *testing.T) {
	inBoth(t, func(t *testing.T, name string) {
		_, o := startWeb(t, name, func(o *Options) { o.Target = to(tcptest.Serve(t, tcptest.Echo)) })
		o.Connections = 3
		c := opened(t, o)
		exchange(t, c, 1_000_000)
		<-c.Done()
	})
}

// Strangers and a client use the same bridge at the same time.
func TestStrangersBesideAClient(t *testing.T) {
	inBoth(t, func(t *testing.T, name string) {
		s, o := startWeb(t, name, func(o *Options) { o.Target = to(tcptest.Serve(t, tcptest.Echo)) })
		c := opened(t, o)
		defer c.Close()
		stranger := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}}
		defer stranger.CloseIdleConnections()
		for _, method := range []string{"GET", "HEAD"} {
			r, err := http.NewRequestWithContext(t.Context(), method, name+"://"+s.at.String()+"/about", nil)
			if err != nil {
				t.Fatal(err)
			}
			answer, err := stranger.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(answer.Body)
			answer.Body.Close()
			if err != nil || answer.StatusCode != 200 || method == "GET" && !strings.Contains(string(body), "never changes") {
				t.Errorf("%s: %s, %q, %v", method, answer.Status, body, err)
			}
		}
		exchange(t, c, 10_000)
	})
}

// A censor who recorded a client's connection and repeats it gets the answers that the client got, wherever a request is one that
// nobody repeats by chance, and no link.
func TestReplayedClient(t *testing.T) {
	t.Parallel()
	s, o := startWeb(t, web.Name, func(o *Options) { o.Target = to(tcptest.Serve(t, tcptest.Echo)) })
	w := startWire(t, s.at, 0)
	o.Line.Address, o.Connections = w.at, 1
	c := opened(t, o)
	exchange(t, c, 50_000)
	<-c.Done()
	polltest.Await(t, "the link is forgotten", func() bool { return len(s.Status().Links) == 0 })
	w.mu.Lock()
	up, down := bytes.Clone(w.up[0].Bytes()), bytes.Clone(w.down[0].Bytes())
	w.mu.Unlock()
	again := replay(t, s.at, up)
	requests, first, second := bufio.NewReader(bytes.NewReader(up)), bufio.NewReader(bytes.NewReader(down)), bufio.NewReader(bytes.NewReader(again))
	same := 0
	for {
		r, err := http.ReadRequest(requests)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			t.Fatal(err)
		}
		a, b := answer(t, first, r), answer(t, second, r)
		switch tokens := strings.Contains(r.RequestURI, "=") || r.Method == "POST"; {
		case a == "": // the client left before it
		case tokens && a != b:
			t.Errorf("%s %s is answered in another way", r.Method, r.RequestURI)
		case tokens:
			same++
		}
	}
	if st := s.Status(); same < 5 || st.LinksEver != 1 || st.Refused[handshake.Replayed] != 1 {
		t.Errorf("%d requests with tokens; %+v", same, st)
	}
	for _, cut := range []int{1, len(up) / 3, len(up) / 2} { // the bridge takes no part for the whole
		replay(t, s.at, up[:cut])
	}
}

// replay sends what a client sent, and returns all answers.
func replay(t *testing.T, at netip.AddrPort, sent []byte) []byte {
	t.Helper()
	c, err := net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(at))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	go func() {
		_, _ = c.Write(sent)
		_ = c.CloseWrite()
	}()
	got, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// answer returns the body of the next answer, or "" if there is none.
func answer(t *testing.T, in *bufio.Reader, r *http.Request) string {
	t.Helper()
	a, err := http.ReadResponse(in, r)
	if err != nil {
		return ""
	}
	defer a.Body.Close()
	body, err := io.ReadAll(a.Body)
	if err != nil || a.StatusCode != 200 {
		t.Errorf("%s: %s, %v", r.RequestURI, a.Status, err)
	}
	return string(body)
}

func TestAHostIsAlone(t *testing.T) {
	_, o := startWeb(t, web.Name, nil)
	b, err := New(Options{Server: &handshake.Server{}, Covers: map[byte]cover.Factory{web.Number: o.Covers[0].Factory, random.Number: factory(t, o.Line.Key, 0)}, Target: to(netip.AddrPort{})})
	if err == nil {
		t.Error("a bridge with a website and another cover on one port", b)
	}
}

// Downloads over a link that is open, through a man in the middle with a delay and no limit of the rate. The bytes are those
// that TCP carries.
func BenchmarkWebsite(b *testing.B) {
	target := tcptest.Serve(b, func(c *net.TCPConn) {
		var size [8]byte
		if _, err := io.ReadFull(c, size[:]); err == nil {
			_, _ = io.CopyN(c, zeros{}, int64(binary.BigEndian.Uint64(size[:])))
		}
	})
	for _, name := range []string{web.Name, web.NameTLS} {
		for i := range 6 {
			rtt, size := []time.Duration{0, 85 * time.Millisecond, 450 * time.Millisecond}[i/2], []int{1_000_000, 10_000_000}[i%2]
			b.Run(fmt.Sprintf("%s/%v/%dMB", name, rtt, size/1_000_000), func(b *testing.B) {
				s, o := startWeb(b, name, nil)
				w := startWire(b, s.at, rtt/2)
				o.Line.Address = w.at
				if name == web.Name {
					o.Connections = 6
				}
				many, err := client.NewMany(o)
				if err != nil {
					b.Fatal(err)
				}
				defer many.Close()
				fetch := func(size int) {
					c, err := many.Dial(b.Context(), path.At(target))
					if err != nil {
						b.Fatal(err)
					}
					defer c.Close()
					if _, err := c.Write(binary.BigEndian.AppendUint64(nil, uint64(size))); err != nil {
						b.Fatal(err)
					}
					if n, err := io.Copy(io.Discard, c); err != nil || n != int64(size) {
						b.Fatal(n, err)
					}
				}
				fetch(1_000_000) // the connections open
				up, down := w.seen()
				for b.Loop() {
					fetch(size)
				}
				up2, down2 := w.seen()
				rounds := float64(b.N)
				b.ReportMetric(float64(size)*rounds/1000/b.Elapsed().Seconds(), "kB/s")
				b.ReportMetric(float64(down2-down)/rounds/float64(size), "x-down")
				b.ReportMetric(float64(up2-up)/rounds/1000, "kB-up")
			})
		}
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }

// ending is a path of a program that may have ended: then nothing more is sent.
type ending struct {
	path.Path
	over atomic.Bool
}

func (e *ending) Dial(ctx context.Context, to path.Target) (net.Conn, error) {
	c, err := path.Dial(ctx, e.Path, to)
	return &endingConn{c, e}, err
}

type endingConn struct {
	net.Conn
	of *ending
}

func (c *endingConn) Write(b []byte) (int, error) {
	if c.of.over.Load() {
		return 0, net.ErrClosed
	}
	return c.Conn.Write(b)
}

// A program that ends says so: the bridge forgets the link at once, and not when its patience is over.
func TestLeave(t *testing.T) {
	t.Parallel()
	for _, name := range []string{random.Name, web.Name, web.NameTLS} {
		t.Run(name, func(t *testing.T) {
			var s *setup
			var o client.Options
			patient := func(o *Options) { o.Link.Patience = time.Hour }
			if name == random.Name {
				s = start(t, patient)
				o = s.options()
			} else {
				s, o = startWeb(t, name, patient)
			}
			by := &ending{Path: path.NewSystem(0)}
			o.Paths = []client.Path{{Name: "a", Path: by}}
			m, err := client.NewMany(o)
			if err != nil {
				t.Fatal(err)
			}
			c, err := m.Dial(t.Context(), path.At(tcptest.Serve(t, tcptest.Echo)))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if n := len(s.Status().Links); n != 1 {
				t.Fatalf("%d links", n)
			}
			m.Leave()
			by.over.Store(true)
			polltest.Await(t, "the bridge forgets the link", func() bool { return len(s.Status().Links) == 0 })
		})
	}
}
