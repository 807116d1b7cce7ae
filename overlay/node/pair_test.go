package node

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"heddle/identity"
	"heddle/internal/polltest"
	"heddle/internal/tcptest"
	"heddle/overlay/client"
	"heddle/path"
)

// setup is a node on loopback, its grantor and a holder.
type setup struct {
	*Node
	grantor, holder identity.Identity
	dir             string
	stop            context.CancelFunc
	done            chan error
}

func fresh(t testing.TB) identity.Identity {
	t.Helper()
	id, err := identity.New()
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// start starts a node, which edit may have otherwise.
func start(t testing.TB, edit func(*Options)) *setup {
	t.Helper()
	l, socket, err := path.ListenBoth(t.Context(), netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	return startAt(t, l, socket, edit)
}

// startAt starts a node of what arrives at a listener and a socket.
func startAt(t testing.TB, l net.Listener, socket net.PacketConn, edit func(*Options)) *setup {
	t.Helper()
	s := &setup{grantor: fresh(t), holder: fresh(t), dir: t.TempDir(), done: make(chan error, 1)}
	o := Options{Identity: fresh(t), Name: "test", Grantors: []identity.Key{s.grantor.Key()},
		Modes: []string{client.ModeForward}, Revoked: filepath.Join(s.dir, "revoked"), Usage: filepath.Join(s.dir, "usage.json"),
		MaxFlows: 4, Idle: time.Minute, Drain: time.Millisecond, Log: slog.New(slog.DiscardHandler)}
	if edit != nil {
		edit(&o)
	}
	var err error
	if s.Node, err = New(l, socket, o); err != nil {
		t.Fatal(err)
	}
	var ctx context.Context
	ctx, s.stop = context.WithCancel(context.Background())
	go func() { s.done <- s.Run(ctx) }()
	t.Cleanup(func() {
		s.stop()
		if err := <-s.done; err != nil {
			t.Errorf("the node ended with %v", err)
		}
	})
	return s
}

// grant is one for the holder and loopback addresses, which edit may have otherwise.
func (s *setup) grant(t testing.TB, edit func(*client.Grant)) client.Signed {
	t.Helper()
	g := client.Grant{Holder: s.holder.Key(), From: time.Now(), Until: time.Now().Add(time.Hour), To: []string{"127.0.0.1", "::1"}, Modes: []string{client.ModeForward}}
	if edit != nil {
		edit(&g)
	}
	signed, err := client.Issue(s.grantor, g)
	if err != nil {
		t.Fatal(err)
	}
	return signed
}

// pass is one for the node with a grant.
func (s *setup) pass(grant client.Signed) client.Pass {
	return client.Pass{Name: "test", Key: s.Key(), Addresses: []string{s.Addr().String()}, Grant: grant}
}

// through dials an address by the node as the holder.
func (s *setup) through(t *testing.T, ctx context.Context, grant client.Signed, to netip.AddrPort) (net.Conn, error) {
	t.Helper()
	return dialBy(t, ctx, s.pass(grant), s.holder, to)
}

func dialBy(t *testing.T, ctx context.Context, pass client.Pass, id identity.Identity, to netip.AddrPort) (net.Conn, error) {
	t.Helper()
	way, err := client.Through(pass, id, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	c, err := way.Dial(ctx, path.At(to))
	if err == nil {
		t.Cleanup(func() { c.Close() })
	}
	return c, err
}

func reasonOf(err error) client.Reason {
	if refused, ok := errors.AsType[*client.Refusal](err); ok {
		return refused.Reason
	}
	return ""
}

// A stream goes both ways, whole, and each end of it is passed on by itself.
func TestStream(t *testing.T) {
	s := start(t, nil)
	to := tcptest.Serve(t, tcptest.Echo)
	for name, ctx := range map[string]context.Context{"awaited": t.Context(), "early": path.WithEarly(t.Context())} {
		c, err := s.through(t, ctx, s.grant(t, nil), to)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		sent := strings.Repeat("0123456789abcdef", 1<<16)
		go func() {
			io.WriteString(c, sent)
			c.(interface{ CloseWrite() error }).CloseWrite()
		}()
		got, err := io.ReadAll(c)
		if err != nil || string(got) != sent {
			t.Errorf("%s: %d bytes of %d came back, %v", name, len(got), len(sent), err)
		}
	}
	status := s.Status()
	if status.Flows != 2 || status.Up != 2<<20 || status.Down != 2<<20 {
		t.Errorf("counted %+v", status)
	}
}

// Who speaks last may be the server, long after the client has said all.
func TestServerSpeaksFirst(t *testing.T) {
	s := start(t, nil)
	to := tcptest.Serve(t, func(c *net.TCPConn) { io.WriteString(c, "220 hello\r\n") })
	c, err := s.through(t, path.WithEarly(t.Context()), s.grant(t, nil), to)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(c); string(got) != "220 hello\r\n" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

func TestRefusals(t *testing.T) {
	s := start(t, nil)
	to := tcptest.Serve(t, tcptest.Echo)
	closed := netip.AddrPortFrom(to.Addr(), 1)
	stranger := fresh(t)
	for name, c := range map[string]struct {
		grant  client.Signed
		holder identity.Identity
		to     netip.AddrPort
		want   client.Reason
	}{
		"none":                 {client.Signed{}, s.holder, to, client.ReasonMissing},
		"another holder's":     {s.grant(t, nil), stranger, to, client.ReasonHolder},
		"by a stranger":        {issuedBy(t, stranger, s.holder.Key()), s.holder, to, client.ReasonGrantor},
		"expired":              {s.grant(t, func(g *client.Grant) { g.From, g.Until = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour) }), s.holder, to, client.ReasonExpired},
		"not yet":              {s.grant(t, func(g *client.Grant) { g.From, g.Until = time.Now().Add(time.Hour), time.Now().Add(2*time.Hour) }), s.holder, to, client.ReasonEarly},
		"for a survey":         {s.grant(t, func(g *client.Grant) { g.Modes = []string{client.ModeSurvey} }), s.holder, to, client.ReasonMode},
		"for public addresses": {s.grant(t, func(g *client.Grant) { g.To = nil }), s.holder, to, client.ReasonDestination},
		"for everywhere":       {s.grant(t, func(g *client.Grant) { g.To = []string{"0.0.0.0/0", "::/0"} }), s.holder, to, client.ReasonDestination},
		"for another port":     {s.grant(t, func(g *client.Grant) { g.To = []string{"127.0.0.1:1"} }), s.holder, to, client.ReasonDestination},
		"for another place":    {s.grant(t, func(g *client.Grant) { g.To = []string{"192.0.2.1"} }), s.holder, to, client.ReasonDestination},
		"nobody listens":       {s.grant(t, nil), s.holder, closed, client.ReasonUnreachable},
		"right":                {s.grant(t, nil), s.holder, to, ""},
		// An address of the node itself is named by itself, or not at all.
		"by its network": {s.grant(t, func(g *client.Grant) { g.To = []string{"127.0.0.0/8"} }), s.holder, to, client.ReasonDestination},
	} {
		for _, ctx := range []context.Context{t.Context(), path.WithEarly(t.Context())} {
			conn, err := dialBy(t, ctx, s.pass(c.grant), c.holder, c.to)
			if err == nil && path.WantsEarly(ctx) {
				io.WriteString(conn, strings.Repeat("x", 100000))
				conn.(interface{ CloseWrite() error }).CloseWrite()
				_, err = io.ReadAll(conn)
			}
			if got := reasonOf(err); got != c.want || (err == nil) != (c.want == "") {
				t.Errorf("%s: %v, want %q", name, err, c.want)
			}
		}
		s.failures.GiveBack(netip.MustParseAddr("127.0.0.1")) // else the source is slowed down, which another test is about
		s.failures.GiveBack(netip.MustParseAddr("127.0.0.1"))
	}
}

func issuedBy(t *testing.T, grantor identity.Identity, holder identity.Key) client.Signed {
	t.Helper()
	signed, err := client.Issue(grantor, client.Grant{Holder: holder, From: time.Now(), Until: time.Now().Add(time.Hour), Modes: []string{client.ModeForward}})
	if err != nil {
		t.Fatal(err)
	}
	return signed
}

// Somebody else answers at the node's address, or at one of them.
func TestAnotherNodeAnswers(t *testing.T) {
	s, other := start(t, nil), start(t, nil)
	to := tcptest.Serve(t, tcptest.Echo)
	pass := s.pass(s.grant(t, nil))
	pass.Addresses = []string{other.Addr().String()}
	_, err := dialBy(t, t.Context(), pass, s.holder, to)
	if wrong, ok := errors.AsType[*identity.KeyError](err); !ok || wrong.Got != other.Key() || !strings.Contains(err.Error(), "is not the node test") {
		t.Errorf("%v", err)
	}
	if refused := other.Status().Refused; len(refused) > 0 {
		t.Errorf("the other node was asked, and refused %v", refused)
	}
	pass.Addresses = append(pass.Addresses, s.Addr().String())
	if _, err := dialBy(t, t.Context(), pass, s.holder, to); err != nil {
		t.Errorf("at the second address: %v", err)
	}
	name, key := pass, pass
	name.Grant = other.grant(t, func(g *client.Grant) { g.Nodes = []identity.Key{other.Key()} })
	if err := name.Check(); err == nil {
		t.Error("a pass with another node's grant is taken")
	}
	key.Key = other.Key()
	if _, err := dialBy(t, t.Context(), key, s.holder, to); err == nil {
		t.Error("a pass with another's key leads somewhere")
	}
}

func TestWithoutGrantorNothingStarts(t *testing.T) {
	_, err := New(newBehind(t), nil, Options{Identity: fresh(t), Modes: []string{client.ModeForward}, MaxFlows: 1})
	if err == nil || !strings.Contains(err.Error(), "no grantor") {
		t.Errorf("%v", err)
	}
}

// A grant's bytes are a limit to the byte, over all its streams.
func TestBytesAreALimit(t *testing.T) {
	const limit = 300_000
	s := start(t, nil)
	to := tcptest.Serve(t, func(c *net.TCPConn) {
		for {
			if _, err := c.Write(make([]byte, 10_000)); err != nil {
				return
			}
		}
	})
	grant := s.grant(t, func(g *client.Grant) { g.Bytes = limit })
	got := make(chan int)
	for range 3 {
		go func() {
			c, err := s.through(t, t.Context(), grant, to)
			if err != nil {
				got <- 0 // the others were faster
				return
			}
			data, _ := io.ReadAll(c)
			got <- len(data)
		}()
	}
	sum := <-got + <-got + <-got
	if sum > limit || sum == 0 {
		t.Errorf("%d bytes came through, of %d", sum, limit)
	}
	if _, err := s.through(t, t.Context(), grant, to); reasonOf(err) != client.ReasonUsedUp {
		t.Errorf("afterwards: %v", err)
	}
	if used := s.Status().Grants[0].Used; used != limit {
		t.Errorf("%d bytes are counted, of %d", used, limit)
	}
}

// What was used is known after a restart.
func TestUsageIsKept(t *testing.T) {
	s := start(t, nil)
	to := tcptest.Serve(t, tcptest.Echo)
	grant := s.grant(t, func(g *client.Grant) { g.Bytes = 10 })
	c, err := s.through(t, t.Context(), grant, to)
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(c, "0123456789")
	io.ReadAll(c)
	id, key := s.o.Identity, s.grantor.Key()
	usage := s.o.Usage
	if err := s.ledger.keep(); err != nil {
		t.Fatal(err)
	}
	again := start(t, func(o *Options) { o.Identity, o.Grantors, o.Usage = id, []identity.Key{key}, usage })
	if _, err := dialBy(t, t.Context(), again.pass(grant), s.holder, to); reasonOf(err) != client.ReasonUsedUp {
		t.Errorf("after a restart: %v", err)
	}
}

// short opens something by a grant that ends soon: as soon as leaves a busy machine the time to open it at all. The grant
// begins at a clock that stands at 0.7 s, and grants are by the second.
func short(t *testing.T, open func(life time.Duration) error) {
	t.Helper()
	polltest.Again(t, func(try int) error { return open(300*time.Millisecond + time.Second<<try) })
}

// What is revoked ends, and what ends by itself does.
func TestStreamsEndWithTheirGrant(t *testing.T) {
	// A clock that stands, so that a busy machine cannot open the short stream too late.
	now := time.Now().Truncate(time.Second).Add(700 * time.Millisecond)
	s := start(t, func(o *Options) { o.now = func() time.Time { return now } })
	to := tcptest.Serve(t, tcptest.Echo)
	open := func(grant client.Signed) net.Conn {
		t.Helper()
		c, err := s.through(t, t.Context(), grant, to)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	var brief net.Conn
	short(t, func(life time.Duration) (err error) {
		brief, err = s.through(t, t.Context(), s.grant(t, func(g *client.Grant) { g.From, g.Until = now.Add(-time.Hour), now.Add(life) }), to)
		return err
	})
	if _, err := io.ReadAll(brief); err == nil {
		t.Error("a stream whose grant ended did so as if its server had ended it")
	}
	one, two := s.grant(t, nil), s.grant(t, nil)
	first, second := open(one), open(two)
	if err := Revoke(s.o.Revoked, one.Grant.ID, "a test"); err != nil {
		t.Fatal(err)
	}
	s.enforce()
	if _, err := io.ReadAll(first); err == nil {
		t.Error("a revoked stream ended as if its server had ended it")
	}
	if _, err := s.through(t, t.Context(), one, to); reasonOf(err) != client.ReasonRevoked {
		t.Errorf("a revoked grant: %v", err)
	}
	io.WriteString(second, "x")
	if _, err := io.ReadFull(second, make([]byte, 1)); err != nil {
		t.Errorf("another grant's stream: %v", err)
	}
	if err := Revoke(s.o.Revoked, s.holder.Key().String(), ""); err != nil {
		t.Fatal(err)
	}
	s.enforce()
	if _, err := io.ReadAll(second); err == nil {
		t.Error("a stream of a revoked holder ended as if its server had ended it")
	}
	polltest.Await(t, "all streams have ended", func() bool { return s.flows.Count() == 0 })
}

// A holder has so many streams at a time, and gets a place back.
func TestMaxFlows(t *testing.T) {
	s := start(t, func(o *Options) { o.MaxFlows = 2 })
	to := tcptest.Serve(t, tcptest.Echo)
	var open []net.Conn
	for range 2 {
		c, err := s.through(t, t.Context(), s.grant(t, nil), to)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, c)
	}
	if _, err := s.through(t, t.Context(), s.grant(t, nil), to); reasonOf(err) != client.ReasonBusy {
		t.Errorf("a third: %v", err)
	}
	other := fresh(t)
	if _, err := dialBy(t, t.Context(), s.pass(s.grant(t, func(g *client.Grant) { g.Holder = other.Key() })), other, to); err != nil {
		t.Errorf("another holder: %v", err)
	}
	open[0].Close()
	for {
		if _, err := s.through(t, t.Context(), s.grant(t, nil), to); err == nil {
			break
		} else if reasonOf(err) != client.ReasonBusy {
			t.Fatal(err)
		}
	}
}

func TestStatusOverTheWire(t *testing.T) {
	s := start(t, nil)
	grant := s.grant(t, func(g *client.Grant) { g.Bytes = 1000 })
	s.grant(t, nil)
	ask := func(id identity.Identity, grant client.Signed) (client.Status, error) {
		t.Helper()
		client, err := client.New(s.pass(grant), id, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		return client.Status(t.Context())
	}
	own, err := ask(s.holder, grant)
	if err != nil || len(own.Grants) != 1 || own.Grants[0].ID != grant.Grant.ID || own.Listen != "" || own.Name != "test" {
		t.Errorf("a holder sees %+v, %v", own, err)
	}
	all, err := ask(s.grantor, client.Signed{})
	if err != nil || all.Listen == "" || len(all.Grants) != 1 {
		t.Errorf("a grantor sees %+v, %v", all, err)
	}
	if _, err := ask(fresh(t), client.Signed{}); reasonOf(err) != client.ReasonMissing {
		t.Errorf("a stranger: %v", err)
	}
	if _, err := ask(fresh(t), grant); reasonOf(err) != client.ReasonHolder {
		t.Errorf("with another's grant: %v", err)
	}
	if !slices.Contains(own.Modes, client.ModeForward) {
		t.Errorf("modes %v", own.Modes)
	}
}

// An upload that was cut off must not look whole to the server, nor a download to the client.
func TestCutIsPassedOn(t *testing.T) {
	s := start(t, nil)
	heard := make(chan error, 1)
	to := tcptest.Serve(t, func(c *net.TCPConn) {
		_, err := io.ReadAll(c)
		heard <- err
	})
	c, err := s.through(t, t.Context(), s.grant(t, nil), to)
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(c, "half of it")
	c.(interface{ NetConn() net.Conn }).NetConn().Close()
	if err := <-heard; err == nil {
		t.Error("the server takes half for the whole")
	}
	resets := tcptest.Serve(t, func(c *net.TCPConn) {
		io.WriteString(c, "half of it")
		io.ReadFull(c, make([]byte, 1))
		c.SetLinger(0)
	})
	if c, err = s.through(t, t.Context(), s.grant(t, nil), resets); err != nil {
		t.Fatal(err)
	}
	io.ReadFull(c, make([]byte, len("half of it")))
	io.WriteString(c, "x")
	if _, err := io.ReadAll(c); err == nil {
		t.Error("the client takes half for the whole")
	}
}
