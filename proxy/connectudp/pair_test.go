package connectudp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"heddle/path"
	"heddle/path/masque"
	"heddle/proxy/targets"
	"heddle/proxy/users"
)

// setup is a proxy on loopback with one user.
type setup struct {
	*Proxy
	auth  string
	token string
	pin   string
	stop  context.CancelFunc
	done  chan error
	gone  bool // the test took its socket away
}

// start starts a proxy that forwards to loopback addresses, unless edit has it otherwise.
func start(t *testing.T, edit func(*Options)) *setup {
	t.Helper()
	dir := t.TempDir()
	s := &setup{auth: filepath.Join(dir, "users"), done: make(chan error, 1)}
	var err error
	if s.token, err = users.Add(s.auth, "ann"); err != nil {
		t.Fatal(err)
	}
	certificate, err := SelfSigned(filepath.Join(dir, "tls"), []string{"127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	s.pin = masque.Pin(certificate.Leaf())
	o := Options{Certificate: certificate.Get, MaxFlows: 4, Idle: time.Minute,
		Drain: time.Millisecond, Log: slog.New(slog.NewTextHandler(io.Discard, nil))}
	if o.Users, err = users.Load(s.auth); err != nil {
		t.Fatal(err)
	}
	if o.Targets, err = targets.New([]string{"127.0.0.1", "::1"}, nil); err != nil {
		t.Fatal(err)
	}
	if edit != nil {
		edit(&o)
	}
	socket, err := path.ListenUDP(netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	if s.Proxy, err = New(socket, o); err != nil {
		t.Fatal(err)
	}
	var ctx context.Context
	ctx, s.stop = context.WithCancel(context.Background())
	go func() { s.done <- s.Run(ctx) }()
	t.Cleanup(func() {
		s.stop()
		if err := <-s.done; err != nil && !s.gone {
			t.Errorf("the proxy ended with %v", err)
		}
	})
	return s
}

// way makes a path through the proxy.
func (s *setup) way(t *testing.T, secret string, base path.Path) path.Path {
	t.Helper()
	spec, err := path.ParseSpec("m=masque:https://" + s.Addr().String() + "#sha256=" + s.pin)
	if err != nil {
		t.Fatal(err)
	}
	p, err := path.New(spec, path.Options{Base: base, Secret: func(name string) (path.Secret, error) {
		if name != "m" {
			t.Errorf("asked for the secret of %s", name)
		}
		return path.Secret(secret), nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// echo answers each datagram with itself.
func echo(t *testing.T, listen string) (netip.AddrPort, *net.UDPConn) {
	t.Helper()
	c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(listen)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	go func() {
		buffer := make([]byte, 4096)
		for {
			n, from, err := c.ReadFromUDPAddrPort(buffer)
			if err != nil {
				return
			}
			c.WriteToUDPAddrPort(buffer[:n], from)
		}
	}()
	return c.LocalAddr().(*net.UDPAddr).AddrPort(), c
}

func open(t *testing.T, p path.Path, to netip.AddrPort) path.Flow {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	f, err := path.Open(ctx, p, to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// exchange sends one datagram and wants it back.
func exchange(t *testing.T, f path.Flow, to netip.AddrPort, datagram []byte) {
	t.Helper()
	if n, err := f.Send([][]byte{datagram}); n != 1 || err != nil {
		t.Fatalf("sent %d, %v", n, err)
	}
	into := make([]path.Inbound, 4)
	n, err := f.Receive(into)
	if n != 1 || err != nil || !bytes.Equal(into[0].Data, datagram) || into[0].From != to {
		t.Fatalf("received %d, %v, %d bytes from %v; want %d from %v", n, err, len(into[0].Data), into[0].From, len(datagram), to)
	}
}

func TestPairCarriesDatagrams(t *testing.T) {
	s := start(t, nil)
	p := s.way(t, s.token, nil)
	for _, listen := range []string{"127.0.0.1:0", "[::1]:0"} {
		to, _ := echo(t, listen)
		f := open(t, p, to)
		for _, size := range []int{1, 1200, 1280} {
			exchange(t, f, to, bytes.Repeat([]byte{byte(size)}, size))
		}
	}
	status := s.settled(t, 6, 6)
	if status.Connections != 1 || status.FlowsOpen != 2 || status.Flows != 2 || status.Up.Packets != 6 || status.Down.Bytes != 2*(1+1200+1280) {
		t.Errorf("%+v", status)
	}
	if info := p.Describe(); info.MTU < 1361 || info.Exit != "masque:"+s.Addr().String() || info.Observer != info.Exit || !info.Ready {
		t.Errorf("%+v", info)
	}
}

// settled waits until so many datagrams are counted: an answer may overtake the count of its question.
func (s *setup) settled(t *testing.T, up, down uint64) Status {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		got := s.Status()
		if got.Up.Packets == up && got.Down.Packets == down {
			return got
		}
		if time.Now().After(deadline) {
			t.Fatalf("%+v, want %d datagrams up and %d down", got, up, down)
		}
	}
}

// A flow takes what it says that it carries, also where its number takes more room.
func TestFlowsCarryWhatTheySay(t *testing.T) {
	s := start(t, func(o *Options) { o.MaxFlows = 128 }) // the proxy may be late to see that one ended
	to, _ := echo(t, "127.0.0.1:0")
	p := s.way(t, s.token, nil)
	first := open(t, p, to)
	if mtu := first.(path.Sized).MTU(); mtu < 1361 {
		t.Errorf("the first flow carries %d bytes, although the proxy begins with larger packets", mtu)
	}
	last := first
	for range 64 { // the quarter stream ID then takes two bytes
		last.Close()
		last = open(t, p, to)
	}
	if n, err := last.Send([][]byte{make([]byte, last.(path.Sized).MTU()-28)}); n != 1 {
		t.Errorf("the last flow refuses it: %v", err)
	}
}

func TestOversizeIsTold(t *testing.T) {
	s := start(t, nil)
	to, _ := echo(t, "127.0.0.1:0")
	f := open(t, s.way(t, s.token, nil), to)
	n, err := f.Send([][]byte{[]byte("first"), make([]byte, 1500), []byte("second")})
	var u *path.Unreachable
	if n != 2 || !errors.As(err, &u) || u.Errno != unix.EMSGSIZE || u.MTU < 1361 || u.MTU > 1452 {
		t.Fatalf("sent %d, %v", n, err)
	}
	got := 0
	for into := make([]path.Inbound, 4); got < 2; {
		n, err := f.Receive(into)
		if err != nil {
			t.Fatal(err)
		}
		got += n
	}
}

// refusedOpen wants Open to fail with words.
func refusedOpen(t *testing.T, p path.Path, to netip.AddrPort, want string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	f, err := path.Open(ctx, p, to)
	if err == nil {
		f.Close()
		t.Fatalf("opened; want %q", want)
	}
	var e *path.Error
	if !errors.As(err, &e) || !strings.Contains(err.Error(), want) || errors.Is(err, net.ErrClosed) {
		t.Fatalf("%v; want %q", err, want)
	}
}

func TestWrongSecrets(t *testing.T) {
	s := start(t, nil)
	to, _ := echo(t, "127.0.0.1:0")
	for secret, want := range map[string]string{
		"":               "wants a password or token",
		"heddle_wrong":   "does not take",
		"ann:wrong":      "does not take",
		"nobody:x":       "does not take",
		"bob:" + s.token: "does not take",
		"two words":      "neither USER:PASSWORD nor a token",
	} {
		refusedOpen(t, s.way(t, secret, nil), to, want)
	}
	exchange(t, open(t, s.way(t, "ann:"+s.token, nil), to), to, []byte("with a name"))
	if got := s.Status().RefusedAuth; got != 5 {
		t.Errorf("%d refusals counted", got)
	}
}

// A wrong secret is shown to the proxy once, however often it is tried.
func TestRefusalIsNotRepeated(t *testing.T) {
	s := start(t, nil)
	to, _ := echo(t, "127.0.0.1:0")
	p := s.way(t, "heddle_wrong", nil)
	for range 5 {
		refusedOpen(t, p, to, "does not take")
	}
	if got := s.Status().RefusedAuth; got != 1 {
		t.Errorf("the proxy was asked %d times", got)
	}
}

func TestForbiddenTargets(t *testing.T) {
	s := start(t, func(o *Options) { o.Targets, _ = targets.New([]string{"127.0.0.1:7"}, nil) })
	p := s.way(t, s.token, nil)
	for _, to := range []string{"127.0.0.1:9", "10.0.0.1:53", "[::ffff:127.0.0.1]:9", "[fe80::1]:53", "169.254.169.254:80"} {
		refusedOpen(t, p, netip.MustParseAddrPort(to), "destination_ip_prohibited")
	}
	if got := s.Status(); got.RefusedTarget != 5 || got.Flows != 0 {
		t.Errorf("%+v", got)
	}
}

func TestFlowsAreBounded(t *testing.T) {
	s := start(t, nil)
	to, _ := echo(t, "127.0.0.1:0")
	p := s.way(t, s.token, nil)
	for range 4 {
		exchange(t, open(t, p, to), to, []byte("a flow"))
	}
	refusedOpen(t, p, to, "HTTP status 429")
}

// narrow is a way whose MTU is small.
type narrow struct {
	path.System
	mtu    int
	opened atomic.Int64
}

func (n *narrow) Describe() path.Info {
	info := n.System.Describe()
	info.MTU = n.mtu
	return info
}

func (n *narrow) Open(ctx context.Context, to netip.AddrPort) (path.Flow, error) {
	n.opened.Add(1)
	return n.System.Open(ctx, to)
}

func TestNarrowBases(t *testing.T) {
	s := start(t, nil)
	to, _ := echo(t, "127.0.0.1:0")
	base := &narrow{System: path.NewSystem(0), mtu: 1300}
	refusedOpen(t, s.way(t, s.token, base), to, "needs 1308")
	if info := s.way(t, s.token, base).Describe(); info.Ready || info.MTU != 0 || !strings.Contains(info.Why, "needs 1308") {
		t.Errorf("described as %+v", info)
	}
	if base.opened.Load() != 0 {
		t.Error("something was opened")
	}
	base.mtu = 1308
	p := s.way(t, s.token, base)
	if info := p.Describe(); info.MTU != 1280-39+28 {
		t.Errorf("MTU %d before anything is open", info.MTU)
	}
	exchange(t, open(t, p, to), to, make([]byte, 1200))
}

// A tunnel in a tunnel: QUIC's 1,200 bytes fit the inner one too.
func TestTunnelInATunnel(t *testing.T) {
	outer, inner := start(t, nil), start(t, nil)
	to, _ := echo(t, "127.0.0.1:0")
	p := inner.way(t, inner.token, outer.way(t, outer.token, nil))
	f := open(t, p, to)
	exchange(t, f, to, make([]byte, 1200))
	if got := outer.Status(); got.FlowsOpen != 1 || got.Up.Packets == 0 {
		t.Errorf("%+v", got)
	}
	if info := p.Describe(); info.MTU < 1228 || info.MTU > 1392-39+28-39 {
		t.Errorf("MTU %d inside two tunnels", info.MTU)
	}
}

// A target that is not there ends the flow, and the next one can be opened.
func TestDeadTargetEndsTheFlow(t *testing.T) {
	s := start(t, nil)
	to, socket := echo(t, "127.0.0.1:0")
	socket.Close()
	f := open(t, s.way(t, s.token, nil), to)
	if _, err := f.Send([][]byte{[]byte("anybody?")}); err != nil {
		t.Fatal(err)
	}
	_, err := f.Receive(make([]path.Inbound, 1))
	if err == nil || !strings.Contains(err.Error(), "the proxy cannot reach the target") {
		t.Errorf("%v", err)
	}
	if err := f.(path.Checker).Check(); err == nil {
		t.Error("a dead flow passes its check")
	}
}

func TestProxyVanishes(t *testing.T) {
	s := start(t, nil)
	to, _ := echo(t, "127.0.0.1:0")
	p := s.way(t, s.token, nil)
	f := open(t, p, to)
	exchange(t, f, to, []byte("here"))
	if err := f.(path.Checker).Check(); err != nil {
		t.Fatal(err)
	}
	s.stop()
	_, err := f.Receive(make([]path.Inbound, 1))
	var e *path.Error
	if !errors.As(err, &e) || errors.Is(err, net.ErrClosed) {
		t.Errorf("%v", err)
	}
	if err := f.(path.Checker).Check(); err == nil {
		t.Error("a dead flow passes its check")
	}
	f.Close()
	if _, err := f.Receive(make([]path.Inbound, 1)); err != net.ErrClosed {
		t.Errorf("after Close: %v", err)
	}
}

// A proxy that is killed says nothing; the machine that it ran on does.
func TestProxyIsKilled(t *testing.T) {
	s := start(t, nil)
	to, _ := echo(t, "127.0.0.1:0")
	f := open(t, s.way(t, s.token, nil), to)
	exchange(t, f, to, []byte("here"))
	s.gone = true
	s.socket.Close()
	_, _ = f.Send([][]byte{[]byte("still?")}) // fails where QUIC itself sent something before, such as an acknowledgement
	_, err := f.Receive(make([]path.Inbound, 1))
	var e *path.Error
	if !errors.As(err, &e) || !strings.Contains(err.Error(), "nothing listens on that port") || errors.Is(err, net.ErrClosed) {
		t.Errorf("%v", err)
	}
}

func TestWrongPin(t *testing.T) {
	s := start(t, nil)
	s.pin = strings.Repeat("00", 32)
	refusedOpen(t, s.way(t, s.token, nil), netip.MustParseAddrPort("127.0.0.1:9"), "another key than the pinned one")
	spec, _ := path.ParseSpec("m=masque:https://" + s.Addr().String())
	p, err := path.New(spec, path.Options{})
	if err != nil {
		t.Fatal(err)
	}
	refusedOpen(t, p, netip.MustParseAddrPort("127.0.0.1:9"), "cannot prove who it is")
}

func TestNobodyListens(t *testing.T) {
	_, socket := echo(t, "127.0.0.1:0")
	at := socket.LocalAddr().String()
	socket.Close()
	spec, _ := path.ParseSpec("m=masque:https://" + at)
	p, err := path.New(spec, path.Options{})
	if err != nil {
		t.Fatal(err)
	}
	refusedOpen(t, p, netip.MustParseAddrPort("127.0.0.1:9"), "cannot be reached")
	if info := p.Describe(); info.Ready || info.Why == "" {
		t.Errorf("%+v", info)
	}
}
