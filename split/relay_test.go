package split

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"heddle/internal/polltest"
	"heddle/path"
	"heddle/schedule"
)

// echo is a UDP server on loopback that answers what it gets, and tells from where each datagram came.
func echo(t *testing.T) (netip.AddrPort, chan netip.AddrPort) {
	t.Helper()
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	from := make(chan netip.AddrPort, 1<<14)
	go func() {
		buffer := make([]byte, 1<<16)
		for {
			n, a, err := c.ReadFromUDPAddrPort(buffer)
			if err != nil {
				return
			}
			select {
			case from <- a:
			default:
			}
			c.WriteToUDPAddrPort(buffer[:n], a)
		}
	}()
	return c.LocalAddr().(*net.UDPAddr).AddrPort(), from
}

func startRelay(t *testing.T, to netip.AddrPort, change func(*RelayOptions)) *Relay {
	t.Helper()
	o := RelayOptions{Listen: netip.MustParseAddrPort("127.0.0.1:0"), Options: Options{Session: "relay", To: to.String(), Via: loopbackPaths(3),
		Schedule: schedule.Config{Name: "round-robin", Every: schedule.Every{Packets: 5}}, Log: slog.New(slog.NewTextHandler(io.Discard, nil))}}
	if change != nil {
		change(&o)
	}
	r, err := NewRelay(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return r
}

func client(t *testing.T, to netip.AddrPort) *net.UDPConn {
	t.Helper()
	c, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(to))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(30 * time.Second))
	return c
}

func TestRelaySplitsEachClientOnItsOwn(t *testing.T) {
	server, from := echo(t)
	r := startRelay(t, server, nil)
	const each = 45
	for k := range 2 {
		c := client(t, r.Addr())
		buffer := make([]byte, 100)
		for i := range each {
			text := fmt.Sprintf("client %d, datagram %d", k, i)
			c.Write([]byte(text))
			n, err := c.Read(buffer)
			if err != nil || string(buffer[:n]) != text {
				t.Fatalf("%s came back as %q, %v", text, buffer[:n], err)
			}
		}
		by := map[netip.Addr]int{}
		var order []netip.Addr
		for range each {
			a := (<-from).Addr()
			by[a]++
			order = append(order, a)
		}
		for a, n := range by {
			if n != each/3 {
				t.Errorf("client %d: %v carried %d of %d", k, a, n, each)
			}
		}
		for i := range each {
			if order[i] != order[i/5*5] {
				t.Fatalf("client %d: batches of 5 are broken at %d: %v", k, i, order)
			}
		}
	}
	if s := r.Status(); len(s) != 2 || s[0].Paths[0].Up.Packets != each/3 || s[0].State != "running" {
		t.Errorf("status %+v", s)
	}
}

func TestGarbageFillsABoundedTable(t *testing.T) {
	silent, err := path.Listen(netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })
	const room = 8
	r := startRelay(t, silent.LocalAddr(), func(o *RelayOptions) { o.MaxSessions = room })
	before := runtime.NumGoroutine()
	for range 500 {
		c, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(r.Addr()))
		if err != nil {
			t.Fatal(err)
		}
		c.Write([]byte("garbage"))
		c.Close()
	}
	polltest.Await(t, "all places are taken", func() bool { return len(r.Status()) >= room })
	if n := len(r.Status()); n != room {
		t.Errorf("%d sessions, the bound is %d", n, room)
	}
	polltest.Until(t, func() error { // sessions that begin have more for a moment
		if grown := runtime.NumGoroutine() - before; grown > room*8 {
			return fmt.Errorf("%d more goroutines", grown)
		}
		return nil
	})
}

func TestUnansweredSessionMakesRoom(t *testing.T) {
	server, _ := echo(t)
	r := startRelay(t, server, func(o *RelayOptions) { o.MaxSessions = 2 })
	answered := client(t, r.Addr())
	answered.Write([]byte("hello"))
	if _, err := answered.Read(make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	mute := netip.MustParseAddrPort("127.0.0.1:9")
	r.mu.Lock()
	if _, err := r.begin(t.Context(), mute, r.now().Add(-2*evictAfter)); err != nil {
		t.Fatal(err)
	}
	r.mu.Unlock()
	third := client(t, r.Addr())
	third.Write([]byte("hello"))
	if _, err := third.Read(make([]byte, 10)); err != nil {
		t.Fatalf("no room for the third client: %v", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sessions[mute] != nil || len(r.sessions) != 2 {
		t.Errorf("%d sessions, the unanswered one is there: %v", len(r.sessions), r.sessions[mute] != nil)
	}
}

func TestQuietSessionMakesRoom(t *testing.T) {
	server, _ := echo(t)
	r := startRelay(t, server, func(o *RelayOptions) { o.MaxSessions = 2 })
	talk := func(c *net.UDPConn) error {
		c.Write([]byte("hello"))
		_, err := c.Read(make([]byte, 10))
		return err
	}
	quiet, busy, third := client(t, r.Addr()), client(t, r.Addr()), client(t, r.Addr())
	if err := errors.Join(talk(quiet), talk(busy)); err != nil {
		t.Fatal(err)
	}
	r.mu.Lock()
	if r.evict(r.now()) {
		t.Error("a session that was used a moment ago was ended")
	}
	r.sessions[addrOf(busy)].used = r.now().Add(evictQuiet)
	r.now = func() time.Time { return time.Now().Add(evictQuiet + time.Second) }
	r.mu.Unlock()
	if err := talk(third); err != nil {
		t.Fatalf("no room for the third client: %v", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sessions[addrOf(quiet)] != nil || r.sessions[addrOf(busy)] == nil {
		t.Error("it was not the quiet session that made room")
	}
}

func addrOf(c *net.UDPConn) netip.AddrPort { return c.LocalAddr().(*net.UDPAddr).AddrPort() }

func TestIdleSessionsEnd(t *testing.T) {
	server, _ := echo(t)
	r := startRelay(t, server, nil)
	c := client(t, r.Addr())
	c.Write([]byte("hello"))
	if _, err := c.Read(make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	r.expire()
	if n := len(r.Status()); n != 1 {
		t.Fatalf("%d sessions just after a datagram", n)
	}
	r.mu.Lock()
	r.now = func() time.Time { return time.Now().Add(DefaultIdle + time.Second) }
	r.mu.Unlock()
	r.expire()
	if n := len(r.Status()); n != 0 {
		t.Errorf("%d sessions after the idle time", n)
	}
}

// A session that the server never answered ends long before one that it answered.
func TestUnansweredSessionEndsSoon(t *testing.T) {
	server, _ := echo(t)
	r := startRelay(t, server, nil)
	answered := client(t, r.Addr())
	answered.Write([]byte("hello"))
	if _, err := answered.Read(make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	mute := netip.MustParseAddrPort("127.0.0.1:9")
	began := time.Now()
	after := func(d time.Duration) bool {
		r.mu.Lock()
		r.now = func() time.Time { return began.Add(d) }
		r.mu.Unlock()
		r.expire()
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.sessions[addrOf(answered)] == nil {
			t.Errorf("after %v the answered session is gone", d)
		}
		return r.sessions[mute] != nil
	}
	r.mu.Lock()
	if _, err := r.begin(t.Context(), mute, began); err != nil {
		t.Fatal(err)
	}
	r.mu.Unlock()
	if !after(unansweredIdle) || after(unansweredIdle+time.Second) {
		t.Errorf("the unanswered session does not end after %v", unansweredIdle)
	}
}

// Newcomers must not drive out a client that paused while another may still turn out to be a stranger.
func TestQuietSessionStaysWhereAnotherMayBeAStranger(t *testing.T) {
	server, _ := echo(t)
	r := startRelay(t, server, nil)
	quiet := client(t, r.Addr())
	quiet.Write([]byte("hello"))
	if _, err := quiet.Read(make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	mute := netip.MustParseAddrPort("127.0.0.1:9")
	later := time.Now().Add(evictQuiet + time.Minute)
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, err := r.begin(t.Context(), mute, later); err != nil {
		t.Fatal(err)
	}
	if r.evict(later.Add(evictAfter-1)) || len(r.sessions) != 2 {
		t.Errorf("%d sessions are left while the newest had no chance to be answered", len(r.sessions))
	}
	if !r.evict(later.Add(evictAfter)) || r.sessions[mute] != nil || r.sessions[addrOf(quiet)] == nil {
		t.Error("it was not the unanswered session that made room")
	}
}

func TestListenAddressThatCannotBe(t *testing.T) {
	taken, err := path.Listen(netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for listen, want := range map[netip.AddrPort][2]string{
		taken.LocalAddr():                         {"address already in use", "another port"},
		netip.MustParseAddrPort("192.0.2.1:5000"): {"cannot assign", "no device here has that address"},
	} {
		_, err = NewRelay(t.Context(), RelayOptions{Listen: listen, Options: Options{To: "127.0.0.1:9", Via: loopbackPaths(1)}})
		var e *path.Error
		if !errors.As(err, &e) || !strings.Contains(err.Error(), want[0]) || !strings.Contains(e.Hint, want[1]) {
			t.Errorf("%v: error %v, want %v", listen, err, want)
		}
	}
}

func TestRelayRefusesATunnelThatLeadsBackToIt(t *testing.T) {
	p := &fakePath{name: t.Name(), endpoint: "127.0.0.1:4433"}
	fakes.Store(p.name, p)
	_, err := NewRelay(t.Context(), RelayOptions{Listen: netip.MustParseAddrPort("127.0.0.1:4433"),
		Options: Options{To: "192.0.2.1:443", Via: []path.Spec{{Name: "a", Kind: "fake", Arg: p.name}}}})
	if err == nil || !strings.Contains(err.Error(), "where this relay listens") {
		t.Errorf("it says %v", err)
	}
}

func TestWhatComesBeforeThePathsAreOpenWaitsOrIsCounted(t *testing.T) {
	f, paths := closedFake(t, 2, nil)
	s := &relaySession{session: f, begun: make(chan struct{})}
	s.ctx, s.stop = context.WithCancel(t.Context())
	defer s.stop()
	var burst [][]byte
	for range waitingLimit + 5 {
		burst = append(burst, []byte("x"))
	}
	s.send(burst)
	server := fakeServer
	f.server.Store(&server)
	if err := s.begin(); err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if sent := len(paths[0].take()) + len(paths[1].take()); sent != waitingLimit {
		t.Errorf("%d were sent once the paths were open, want %d", sent, waitingLimit)
	}
	if refused := f.Status("relay").Refused; refused != 5 {
		t.Errorf("%d are counted as not sent, want 5", refused)
	}
}
