package bridge

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"heddle/disguise/client"
	"heddle/disguise/handshake"
	"heddle/disguise/link"
	"heddle/disguise/mux"
	"heddle/internal/errhint"
	"heddle/internal/netutil"
	"heddle/internal/polltest"
	"heddle/internal/tcptest"
	"heddle/path"
)

// exchange sends n bytes and expects them back, with both directions ended in order.
func exchange(t *testing.T, c net.Conn, n int) {
	t.Helper()
	out := make([]byte, n)
	for i := range out {
		out[i] = byte(rand.Uint32())
	}
	sent := make(chan error, 1)
	go func() {
		_, err := c.Write(out)
		sent <- errors.Join(err, c.(interface{ CloseWrite() error }).CloseWrite())
	}()
	in, err := io.ReadAll(c)
	if err := errors.Join(err, <-sent); err != nil || sha256.Sum256(in) != sha256.Sum256(out) {
		t.Errorf("%d of %d bytes came back: %v", len(in), n, err)
	}
}

func TestOneTarget(t *testing.T) {
	t.Parallel()
	var from net.Addr
	s := start(t, func(o *Options) {
		o.Target = func(ctx context.Context, client net.Addr) (net.Conn, error) {
			from = client
			return dialTCP(ctx, tcptest.Serve(t, tcptest.Echo))
		}
	})
	c := opened(t, s.options())
	exchange(t, c, 3<<20)
	<-c.Done()
	if from == nil || !netutil.AddrPort(from).Addr().IsLoopback() {
		t.Errorf("the target was told of a client at %v", from)
	}
	polltest.Await(t, "the link is forgotten", func() bool { return len(s.Status().Links) == 0 })
}

func TestManyStreams(t *testing.T) {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, strings.Repeat(r.URL.Path, 20_000))
	}))
	defer web.Close()
	s := start(t, nil)
	m := s.many(nil)
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return m.Dial(ctx, path.At(netip.MustParseAddrPort(web.Listener.Addr().String())))
	}
	user := &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
	var work sync.WaitGroup
	for i := range 40 {
		work.Go(func() {
			page := fmt.Sprintf("/page%d", i)
			answer, err := user.Get("http://web.example" + page)
			if err != nil {
				t.Error(err)
				return
			}
			defer answer.Body.Close()
			if got, err := io.ReadAll(answer.Body); err != nil || string(got) != strings.Repeat(page, 20_000) {
				t.Errorf("%s: %d bytes, %v", page, len(got), err)
			}
		})
	}
	work.Wait()
	if st := s.Status(); len(st.Links) != 1 || st.Streams != 40 || st.Links[0].Mode != handshake.ManyStreams || st.Links[0].Down == 0 {
		t.Errorf("status: %+v", st)
	}
}

// A user who gives up a download frees the bridge's connection to the target, and others go on.
func TestGivenUpDownload(t *testing.T) {
	gone := make(chan struct{})
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			w.Write(make([]byte, 64<<10))
		}
		close(gone)
	}))
	defer web.Close()
	s := start(t, nil)
	m := s.many(nil)
	at := netip.MustParseAddrPort(web.Listener.Addr().String())
	c, err := m.Dial(t.Context(), path.At(at))
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: web.example\r\n\r\n")
	if _, err := io.ReadFull(c, make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	c.Close()
	<-gone
	c, err = m.Dial(t.Context(), path.At(tcptest.Serve(t, tcptest.Echo)))
	if err != nil {
		t.Fatal(err)
	}
	exchange(t, c, 100_000)
}

func TestRefusals(t *testing.T) {
	closed := tcptest.Nobody(t)
	s := start(t, func(o *Options) {
		o.lookup = func(_ context.Context, name string) ([]netip.Addr, error) {
			switch name {
			case "inside.example":
				return []netip.Addr{netip.MustParseAddr("10.0.0.1")}, nil
			case "here.example":
				return []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("127.0.0.1")}, nil
			}
			return nil, errors.New("no such name")
		}
	})
	m := s.many(nil)
	at := tcptest.Serve(t, tcptest.Echo)
	for name, c := range map[string]struct {
		host string
		port uint16
		want error
	}{
		"an address":              {"127.0.0.1", at.Port(), nil},
		"a name, looked up there": {"here.example", at.Port(), nil},
		"a private address":       {"10.0.0.1", 80, mux.Forbidden},
		"a name of one":           {"inside.example", 80, mux.Forbidden},
		"a port that is denied":   {"127.0.0.1", 7, mux.Forbidden},
		"nobody there":            {"127.0.0.1", closed.Port(), mux.Unreachable},
		"no such name":            {"absent.example", 80, mux.Unreachable},
	} {
		target, err := path.HostPort(c.host, c.port)
		if err != nil {
			t.Fatal(err)
		}
		conn, err := m.Dial(t.Context(), target)
		if !errors.Is(err, c.want) || (c.want == nil) != (err == nil) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if err == nil {
			exchange(t, conn, 1000)
			conn.Close()
		}
	}
	if code := s.reset(); code != link.Forbidden { // this bridge has no target of its own
		t.Errorf("a link to a target that is not there: %v", code)
	}
}

// reset returns the code by which the bridge ends a link. It may come with the answer or behind it.
func (s *setup) reset() link.Code {
	s.t.Helper()
	c, err := openLink(s.t, s.options())
	if err == nil {
		_, err = c.Read(make([]byte, 1))
		c.Close()
	}
	reset, ok := errors.AsType[*link.ResetError](err)
	if !ok || !reset.Remote {
		s.t.Fatalf("not reset by the bridge: %v", err)
	}
	return reset.Code
}

func TestDeadTarget(t *testing.T) {
	s := start(t, func(o *Options) {
		o.Target = func(context.Context, net.Addr) (net.Conn, error) { return nil, syscall.ECONNREFUSED }
	})
	if code := s.reset(); code != link.Unreachable {
		t.Error(code)
	}
}

// Datagrams arrive whole, each in its flow.
func TestDatagrams(t *testing.T) {
	server, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	go func() {
		b := make([]byte, 2000)
		for {
			n, from, err := server.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			server.WriteToUDPAddrPort(append([]byte("re: "), b[:n]...), from)
		}
	}()
	s := start(t, nil)
	m := s.many(nil)
	for i := range 3 {
		f, err := m.Flow(t.Context(), netutil.AddrPort(server.LocalAddr()))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		got := make(chan string, 100)
		go func() {
			in := make([]path.Inbound, 4)
			for {
				n, err := f.Receive(in)
				if err != nil {
					return
				}
				for _, one := range in[:n] {
					got <- string(one.Data)
				}
			}
		}()
		want := fmt.Sprintf("re: flow %d %s", i, strings.Repeat("x", 400*i))
		polltest.Await(t, "the answer", func() bool { // a datagram may be lost
			if n, err := f.Send([][]byte{[]byte(want[4:])}); n != 1 || err != nil {
				t.Fatal(n, err)
			}
			select {
			case one := <-got:
				if one != want {
					t.Fatalf("got %q, want %q", one, want)
				}
				return true
			case <-time.After(20 * time.Millisecond):
				return false
			}
		})
	}
	if _, err := m.Flow(t.Context(), netip.MustParseAddrPort("10.0.0.1:53")); !errors.Is(err, mux.Forbidden) {
		t.Errorf("a flow to a private address: %v", err)
	}
}

// An idle flow ends at the bridge, and its user learns it.
func TestIdleFlow(t *testing.T) {
	s := start(t, func(o *Options) { o.Idle = 50 * time.Millisecond })
	m := s.many(nil)
	f, err := m.Flow(t.Context(), tcptest.Serve(t, tcptest.Echo)) // nobody listens with UDP
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Receive(make([]path.Inbound, 1)); err == nil {
		t.Error("received something")
	}
	polltest.Await(t, "the check fails", func() bool { return path.Check(f) != nil })
	f.Close()
}

func TestWrongKey(t *testing.T) {
	s := start(t, nil)
	other, err := handshake.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	s.line.Key = other.Public()
	s.unanswered(handshake.NoHello)
}

// unanswered checks that the bridge refuses a client for a reason, and that the client names what may be wrong.
func (s *setup) unanswered(reason handshake.Reason) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	defer cancel()
	go polltest.Await(s.t, "the bridge refused it", func() bool {
		if s.Status().Refused[reason] == 0 {
			return false
		}
		cancel()
		return true
	})
	_, err := client.Dial(ctx, s.options())
	var e *path.Error
	if !errors.As(err, &e) || !strings.Contains(e.Hint, "clock") || !strings.Contains(e.Hint, time.Now().UTC().Format("2006-01-02")) {
		s.t.Errorf("%v: %+v", err, e)
	}
}

// A client whose clock is wrong by up to 90 minutes is served, on its first connection and on further ones. Another one is told of its
// clock. Here the bridge's clock differs, because the hosts of a world cannot have clocks of their own: Linux has no namespace for
// the time of day.
func TestWrongClock(t *testing.T) {
	for _, c := range []struct {
		by     time.Duration
		served bool
	}{{-80 * time.Minute, true}, {80 * time.Minute, true}, {-100 * time.Minute, false}, {100 * time.Minute, false}, {365 * 24 * time.Hour, false}} {
		t.Run(c.by.String(), func(t *testing.T) {
			s := start(t, func(o *Options) {
				o.Target = to(tcptest.Serve(t, tcptest.Echo))
				o.clock = func() time.Time { return time.Now().Add(c.by) }
			})
			if !c.served {
				s.unanswered(handshake.Clock)
				return
			}
			link := opened(t, s.options())
			polltest.Await(t, "all its connections joined", func() bool { // a link that starves opens more than it is told
				links := s.Status().Links
				return len(links) == 1 && links[0].Connections >= client.DefaultConnections
			})
			exchange(t, link, 1000)
		})
	}
}

// A bridge that stops says so. When it is back, the next stream opens a link.
func TestRestart(t *testing.T) {
	id, err := handshake.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	first := startAs(t, id, "127.0.0.1:0", nil)
	m := first.many(nil)
	at := tcptest.Serve(t, tcptest.Echo)
	c, err := m.Dial(t.Context(), path.At(at))
	if err != nil {
		t.Fatal(err)
	}
	first.stop()
	if _, err := io.ReadAll(c); err == nil {
		t.Error("a stream of a bridge that stopped ended in order")
	}
	c.Close()
	startAs(t, id, first.at.String(), nil)
	polltest.Until(t, func() error {
		c, err := m.Dial(t.Context(), path.At(at))
		if err != nil {
			return err
		}
		defer c.Close()
		exchange(t, c, 1000)
		return nil
	})
}

// The error of a link that its bridge does not know any more says so.
func TestBridgeThatForgot(t *testing.T) {
	t.Parallel()
	target := to(tcptest.Serve(t, tcptest.Echo))
	id, err := handshake.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	knows := startAs(t, id, "127.0.0.1:0", func(o *Options) { o.Target = target })
	forgot := startAs(t, id, "127.0.0.1:0", func(o *Options) { o.Target = target })
	var now atomic.Pointer[setup]
	now.Store(knows)
	var mu sync.Mutex
	var open []net.Conn
	knows.line.Address = tcptest.Serve(t, func(c *net.TCPConn) {
		to, err := dialTCP(t.Context(), now.Load().at)
		if err != nil {
			return
		}
		mu.Lock()
		open = append(open, to)
		mu.Unlock()
		defer to.Close()
		go io.Copy(c, to)
		_, _ = io.Copy(to, c)
	})
	c := opened(t, knows.options())
	defer c.Close()
	now.Store(forgot)
	mu.Lock()
	for _, to := range open {
		to.Close()
	}
	mu.Unlock()
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	_, err = io.ReadAll(c)
	if err == nil || !strings.Contains(err.Error(), "does not know the link any more") || errhint.Of(err) == "" {
		t.Error(err)
	}
}

// A bridge that stops leaves connections open that begin until its clients have heard of it: to them such an end is a path that fails.
func TestNewcomersStayUntilClientsKnow(t *testing.T) {
	s := start(t, func(o *Options) { o.bye = polltest.Patience })
	newcomer, err := net.Dial("tcp", s.at.String())
	if err != nil {
		t.Fatal(err)
	}
	defer newcomer.Close()
	var left atomic.Bool
	bridge := s.at
	s.line.Address = tcptest.Serve(t, func(c *net.TCPConn) {
		to, err := dialTCP(t.Context(), bridge)
		if err != nil {
			return
		}
		defer to.Close()
		go io.Copy(c, to)
		_, _ = io.Copy(to, c)
		left.Store(true)
	})
	m := s.many(func(o *client.Options) { o.Connections = 1 })
	c, err := m.Dial(t.Context(), path.At(tcptest.Serve(t, tcptest.Echo)))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	stopped := make(chan struct{})
	go func() { defer close(stopped); s.stop() }()
	if _, err := newcomer.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	if !left.Load() {
		t.Error("the newcomer's connection ended before that of the client")
	}
	<-stopped
}
