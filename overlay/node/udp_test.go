package node

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"heddle/identity"
	"heddle/internal/polltest"
	"heddle/internal/tcptest"
	"heddle/overlay/client"
	"heddle/path"
)

// udpEcho answers each datagram with itself, and tells where each came from.
func udpEcho(t *testing.T) (at netip.AddrPort, from chan netip.AddrPort) {
	t.Helper()
	c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	from = make(chan netip.AddrPort, 1000)
	go func() {
		buffer := make([]byte, 4096)
		for {
			n, who, err := c.ReadFromUDPAddrPort(buffer)
			if err != nil {
				return
			}
			from <- who
			c.WriteToUDPAddrPort(buffer[:n], who)
		}
	}()
	return c.LocalAddr().(*net.UDPAddr).AddrPort(), from
}

func (s *setup) way(t *testing.T, grant client.Signed, id identity.Identity, base path.Path) path.Path {
	t.Helper()
	way, err := client.Through(s.pass(grant), id, base)
	if err != nil {
		t.Fatal(err)
	}
	return way
}

func openFlow(t *testing.T, ctx context.Context, way path.Path, to netip.AddrPort) (path.Flow, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	f, err := path.Open(ctx, way, to)
	if err == nil {
		t.Cleanup(func() { f.Close() })
	}
	return f, err
}

// ask sends a datagram and gives what came back, or why nothing did.
func ask(t *testing.T, f path.Flow, data string) (string, error) {
	t.Helper()
	if _, err := f.Send([][]byte{[]byte(data)}); err != nil {
		return "", err
	}
	into := make([]path.Inbound, 1)
	if _, err := f.Receive(into); err != nil {
		return "", err
	}
	return string(into[0].Data), nil
}

func TestDatagrams(t *testing.T) {
	s := start(t, nil)
	to, _ := udpEcho(t)
	way := s.way(t, s.grant(t, nil), s.holder, nil)
	f, err := openFlow(t, t.Context(), way, to)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := ask(t, f, "hello"); got != "hello" {
		t.Errorf("%q, %v", got, err)
	}
	info := way.Describe()
	if info.MTU < 1228 || info.Exit == "" || info.Observer != "node:"+s.Key().Short() || !info.Ready {
		t.Errorf("described as %+v", info)
	}
	if status := s.Status(); status.Up != 5 || status.Down != 5 || status.Flows != 1 || status.FlowsOpen != 1 {
		t.Errorf("counted %+v", status)
	}
}

func TestDatagramRefusals(t *testing.T) {
	s := start(t, nil)
	to, _ := udpEcho(t)
	other := fresh(t)
	for name, c := range map[string]struct {
		grant client.Signed
		id    identity.Identity
		want  client.Reason
	}{
		"none":              {client.Signed{}, s.holder, client.ReasonMissing},
		"another holder's":  {s.grant(t, nil), other, client.ReasonHolder},
		"expired":           {s.grant(t, func(g *client.Grant) { g.From, g.Until = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour) }), s.holder, client.ReasonExpired},
		"for public places": {s.grant(t, func(g *client.Grant) { g.To = nil }), s.holder, client.ReasonDestination},
		"not for this":      {s.grant(t, func(g *client.Grant) { g.Modes = []string{client.ModeNAT} }), s.holder, client.ReasonMode},
	} {
		if _, err := openFlow(t, t.Context(), s.way(t, c.grant, c.id, nil), to); reasonOf(err) != c.want {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	impostor := start(t, nil)
	pass := s.pass(s.grant(t, nil))
	pass.Addresses = []string{impostor.Addr().String()}
	way, err := client.Through(pass, s.holder, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := openFlow(t, t.Context(), way, to); err == nil {
		t.Error("another node's key is taken")
	} else if e, ok := errors.AsType[*path.Error](err); !ok || e.Hint == "" {
		t.Errorf("no hint: %v", err)
	}
}

// A grant's bytes are a limit for datagrams too, and what is revoked ends.
func TestDatagramsEndWithTheirGrant(t *testing.T) {
	s := start(t, nil)
	to, _ := udpEcho(t)
	few := s.way(t, s.grant(t, func(g *client.Grant) { g.Bytes = 100 }), s.holder, nil)
	f, err := openFlow(t, t.Context(), few, to)
	if err != nil {
		t.Fatal(err)
	}
	came := 0
	for {
		got, err := ask(t, f, "0123456789")
		if err != nil {
			break
		}
		came += len(got)
	}
	if came != 50 {
		t.Errorf("%d bytes came back of a grant for 100 both ways", came)
	}
	if _, err := openFlow(t, t.Context(), few, to); reasonOf(err) != client.ReasonUsedUp {
		t.Errorf("afterwards: %v", err)
	}
	grant := s.grant(t, nil)
	if f, err = openFlow(t, t.Context(), s.way(t, grant, s.holder, nil), to); err != nil {
		t.Fatal(err)
	}
	if err := Revoke(s.o.Revoked, grant.Grant.ID, ""); err != nil {
		t.Fatal(err)
	}
	s.enforce()
	if _, err := f.Receive(make([]path.Inbound, 1)); err == nil {
		t.Error("a revoked flow goes on")
	}
}

// A flow ends when its grant does, also one that lives on.
func TestDatagramsEndInTime(t *testing.T) {
	now := time.Now().Truncate(time.Second).Add(700 * time.Millisecond) // and stands, for busy machines
	s := start(t, func(o *Options) { o.now = func() time.Time { return now } })
	to, _ := udpEcho(t)
	var f path.Flow
	short(t, func(life time.Duration) (err error) {
		grant := s.grant(t, func(g *client.Grant) { g.From, g.Until = now.Add(-time.Hour), now.Add(life) })
		f, err = openFlow(t, t.Context(), s.way(t, grant, s.holder, nil), to)
		return err
	})
	polltest.Await(t, "the flow has ended", func() bool {
		_, err := ask(t, f, "x")
		return err != nil
	})
	polltest.Await(t, "its place is given back", func() bool { return s.flows.Count() == 0 })
}

// Two entries, one exit: the server sees one address, and the entries see the exit only.
func TestOneExitByTwoEntries(t *testing.T) {
	tokyo, paris, exit := start(t, nil), start(t, nil), start(t, nil)
	to, from := udpEcho(t)
	id := exit.holder
	by := func(entry *setup) path.Path {
		first := entry.way(t, entry.grant(t, func(g *client.Grant) {
			g.Holder, g.To = id.Key(), []string{exit.Addr().String()}
		}), id, nil)
		return exit.way(t, exit.grant(t, nil), id, first)
	}
	a, b := by(tokyo), by(paris)
	ctx := path.WithSession(t.Context(), "session")
	for _, way := range []path.Path{a, b, a} {
		f, err := openFlow(t, ctx, way, to)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := ask(t, f, "hello"); got != "hello" {
			t.Fatalf("%q, %v", got, err)
		}
	}
	first := <-from
	if second, third := <-from, <-from; second != first || third != first {
		t.Errorf("the server saw %v, %v and %v", first, second, third)
	}
	if a.Describe().Exit != b.Describe().Exit {
		t.Error("the exits are told as two")
	}
	echoing := tcptest.Serve(t, tcptest.Echo)
	c, err := a.(path.Dialer).Dial(ctx, path.At(echoing))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, "by two nodes")
	c.(interface{ CloseWrite() error }).CloseWrite()
	if got, err := io.ReadAll(c); string(got) != "by two nodes" {
		t.Errorf("%q, %v", got, err)
	}
}
