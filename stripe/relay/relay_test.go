package relay

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"heddle/internal/socks5"
	"heddle/proxy/users"
	"heddle/stripe"
)

// wire is a session made of one connection over loopback: what a relay asks of a session, without paths.
type wire struct {
	*net.TCPConn
	mu    sync.Mutex
	state string
	why   string // it was aborted with
}

func (w *wire) Abort(why string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.why == "" {
		w.why = why
	}
	_ = w.SetLinger(0)
	w.TCPConn.Close()
}

func (w *wire) aborted() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.why
}

func (w *wire) Status() stripe.Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	return stripe.Status{State: w.state}
}

func listen(t *testing.T) *net.TCPListener {
	t.Helper()
	l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:0")))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// pair is a front and a back, with a pool between them.
type pair struct {
	pool   *Pool
	dialed chan *wire
	at     string // where programs connect to
}

func newPair(t *testing.T, back *Back, warm int, socks bool) *pair {
	t.Helper()
	return newPairFor(t, nil, back, warm, socks)
}

// newPairFor has a SOCKS5 front for users.
func newPairFor(t *testing.T, who *users.Users, back *Back, warm int, socks bool) *pair {
	t.Helper()
	between := listen(t)
	var running sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(func() { cancel(); running.Wait() })
	running.Go(func() {
		for {
			c, err := between.AcceptTCP()
			if err != nil {
				return
			}
			running.Go(func() { _ = back.Serve(ctx, &wire{TCPConn: c, state: "running"}) })
		}
	})
	context.AfterFunc(ctx, func() { between.Close() })
	p := &pair{dialed: make(chan *wire, 100)}
	p.pool = NewPool(warm, func(ctx context.Context) (Session, error) {
		c, err := net.DialTCP("tcp", nil, between.Addr().(*net.TCPAddr))
		if err != nil {
			return nil, err
		}
		w := &wire{TCPConn: c, state: "running"}
		p.dialed <- w
		return w, nil
	}, nil)
	running.Go(func() { p.pool.Run(ctx) })
	front, l := Front{Pool: p.pool, Users: who}, listen(t)
	p.at = l.Addr().String()
	running.Go(func() {
		serve := front.Serve
		if socks {
			serve = front.ServeSOCKS
		}
		if err := serve(ctx, l); err != nil {
			t.Error(err)
		}
	})
	return p
}

// program is a TCP server that does something with each connection.
func startProgram(t *testing.T, serve func(*net.TCPConn)) string {
	t.Helper()
	l := listen(t)
	go func() {
		for {
			c, err := l.AcceptTCP()
			if err != nil {
				return
			}
			go serve(c)
		}
	}()
	return l.Addr().String()
}

// reverse reads all, and only then answers: it needs the end of one direction to be passed on.
func reverse(c *net.TCPConn) {
	defer c.Close()
	all, err := io.ReadAll(c)
	if err == nil {
		_, _ = c.Write(append([]byte("got "), all...))
	}
}

func connect(t *testing.T, at string) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(2 * time.Minute))
	return c.(*net.TCPConn)
}

func TestBothDirectionsAndTheirEnds(t *testing.T) {
	for _, warm := range []int{0, 1, 3} {
		p := newPair(t, &Back{To: startProgram(t, reverse)}, warm, false)
		for range 4 {
			c := connect(t, p.at)
			sent := bytes.Repeat([]byte("0123456789"), 100_000)
			go func() {
				_, _ = c.Write(sent)
				_ = c.CloseWrite()
			}()
			if got, err := io.ReadAll(c); err != nil || !bytes.Equal(got, append([]byte("got "), sent...)) {
				t.Fatalf("warm %d: %d bytes came back, %v", warm, len(got), err)
			}
		}
	}
}

// A program that speaks first must not wait for the client to say something.
func TestServerThatSpeaksFirst(t *testing.T) {
	p := newPair(t, &Back{To: startProgram(t, func(c *net.TCPConn) { _, _ = c.Write([]byte("220 hello\r\n")); c.Close() })}, 1, false)
	if got, err := io.ReadAll(connect(t, p.at)); err != nil || string(got) != "220 hello\r\n" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestUnixProgram(t *testing.T) {
	dir, err := os.MkdirTemp("", "relay")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	l, err := net.Listen("unix", dir+"/s")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		if c, err := l.Accept(); err == nil {
			_, _ = c.Write([]byte("from a socket"))
			c.Close()
		}
	}()
	p := newPair(t, &Back{To: "unix:" + dir + "/s"}, 0, false)
	if got, err := io.ReadAll(connect(t, p.at)); err != nil || string(got) != "from a socket" {
		t.Errorf("%q, %v", got, err)
	}
}

// A stream that breaks must not look to the program like one that ended.
func TestBrokenStreamIsNoEnd(t *testing.T) {
	started := make(chan struct{})
	p := newPair(t, &Back{To: startProgram(t, func(c *net.TCPConn) {
		_, _ = c.Write([]byte("half"))
		<-started
		_ = c.SetLinger(0)
		c.Close()
	})}, 0, false)
	c := connect(t, p.at)
	if _, err := io.ReadFull(c, make([]byte, 4)); err != nil {
		t.Fatal(err)
	}
	close(started)
	if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("the client reads %v, and takes it for the end", err)
	}
}

func TestProgramThatIsAbsent(t *testing.T) {
	p := newPair(t, &Back{To: "127.0.0.1:1"}, 0, false)
	c, err := net.Dial("tcp", p.at)
	if err == nil { // else the reset came before Dial looked
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		_, err = c.Read(make([]byte, 1))
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the client gets %v, not a reset", err)
	}
}

// askSOCKS asks the front for a target, and gives REP.
func askSOCKS(t *testing.T, c net.Conn, to netip.AddrPort) byte {
	t.Helper()
	request := append([]byte{5, 1, 0, 5, 1, 0, 1}, to.Addr().AsSlice()...)
	request = append(request, byte(to.Port()>>8), byte(to.Port()))
	if _, err := c.Write(request); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, 2+10)
	if _, err := io.ReadFull(c, answer); err != nil {
		t.Fatal(err)
	}
	return answer[3]
}

func TestSOCKS(t *testing.T) {
	target := netip.MustParseAddrPort(startProgram(t, reverse))
	refused := netip.MustParseAddrPort("127.0.0.1:2") // a port that no program is given
	back := &Back{Allowed: func(a netip.AddrPort) bool { return a == target || a == refused }}
	p := newPair(t, back, 1, true)

	c := connect(t, p.at)
	if code := askSOCKS(t, c, target); code != 0 {
		t.Fatalf("answer %d", code)
	}
	_, _ = c.Write([]byte("hello"))
	_ = c.CloseWrite()
	if got, err := io.ReadAll(c); err != nil || string(got) != "got hello" {
		t.Errorf("%q, %v", got, err)
	}
	for to, want := range map[netip.AddrPort]byte{refused: 5, netip.MustParseAddrPort("127.0.0.1:1"): 2} {
		if code := askSOCKS(t, connect(t, p.at), to); code != want {
			t.Errorf("%v: answer %d, want %d", to, code, want)
		}
	}
	for said, want := range map[string]string{
		"\x05\x01\x02": "\x05\xff",
		"\x05\x01\x00\x05\x03\x00\x01\x7f\x00\x00\x01\x00\x01": "\x05\x00\x05\x07\x00\x01\x00\x00\x00\x00\x00\x00",
	} {
		c := connect(t, p.at)
		_, _ = c.Write([]byte(said))
		if got, _ := io.ReadAll(c); string(got) != want {
			t.Errorf("%q is answered by %q, want %q", said, got, want)
		}
	}
}

// The front asks for the password; the other side, whose peer proved its key, does not.
func TestSOCKSForUsers(t *testing.T) {
	file := filepath.Join(t.TempDir(), "users")
	token, err := users.Add(file, "ann")
	if err != nil {
		t.Fatal(err)
	}
	who, err := users.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	target := netip.MustParseAddrPort(startProgram(t, reverse))
	p := newPairFor(t, who, &Back{Allowed: func(netip.AddrPort) bool { return true }}, 1, true)
	for _, c := range []struct {
		with *socks5.Credentials
		want error
	}{{&socks5.Credentials{User: "ann", Password: token}, nil}, {&socks5.Credentials{User: "ann", Password: "guess"}, socks5.ErrPassword}, {nil, socks5.ErrWantsUser}} {
		s := connect(t, p.at)
		if err := socks5.Greet(s, c.with); !errors.Is(err, c.want) {
			t.Errorf("%v: %v, want %v", c.with, err, c.want)
		} else if err == nil {
			if _, err := socks5.Request(s, socks5.Connect, socks5.Target{Addr: target.Addr(), Port: target.Port()}); err != nil {
				t.Error(err)
			}
		}
	}
}

// Plain bytes to a SOCKS5 back, SOCKS5 to a plain one, noise to both: refused with a reason.
func TestWrongKindOfSession(t *testing.T) {
	for _, c := range []struct {
		back Back
		say  string
		want string
	}{
		{Back{To: "127.0.0.1:1"}, "\x05\x01\x00", "no SOCKS5 proxy"},
		{Back{Allowed: func(netip.AddrPort) bool { return true }}, "\x01", "is a SOCKS5 proxy"},
		{Back{To: "127.0.0.1:1"}, "O\x00\x00", "does not know"},
	} {
		l := listen(t)
		client := connect(t, l.Addr().String())
		server, err := l.AcceptTCP()
		if err != nil {
			t.Fatal(err)
		}
		_, _ = client.Write([]byte(c.say))
		s := &wire{TCPConn: server}
		if err := c.back.Serve(t.Context(), s); err != nil || !strings.Contains(s.aborted(), c.want) {
			t.Errorf("%q: aborted with %q, %v", c.say, s.aborted(), err)
		}
	}
}

// Programs that ask for nothing keep no other program out, however many connections they hold.
func TestIdleProgramsKeepNobodyOut(t *testing.T) {
	target := netip.MustParseAddrPort(startProgram(t, reverse))
	p := newPair(t, &Back{Allowed: func(a netip.AddrPort) bool { return a == target }}, 0, true)
	for range maxClients + 10 {
		connect(t, p.at)
	}
	if code := askSOCKS(t, connect(t, p.at), target); code != 0 {
		t.Errorf("answer %d", code)
	}
}
