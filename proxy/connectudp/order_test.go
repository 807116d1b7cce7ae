package connectudp

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"heddle/path"
	"heddle/path/masque"
)

// listenTarget is a target that answers nothing by itself.
func listenTarget(t *testing.T) (target, netip.AddrPort) {
	t.Helper()
	socket, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { socket.Close() })
	return target{socket, t}, socket.LocalAddr().(*net.UDPAddr).AddrPort()
}

// orderedFlow is one of session "one" that wants the order, where wants says so.
func orderedFlow(t *testing.T, way path.Path, to netip.AddrPort, wants bool) path.Flow {
	t.Helper()
	ctx, cancel := context.WithTimeout(path.WithSession(t.Context(), "one"), time.Minute)
	defer cancel()
	if wants {
		ctx = path.WithOrder(ctx)
	}
	f, err := path.Open(ctx, way, to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// answers sends words to where a flow spoke from, and wants the flow to hear each with its place.
func (g target) answers(f path.Flow, exit netip.AddrPort, words []string, places []uint64) (name uint64) {
	g.t.Helper()
	into := make([]path.Inbound, 1)
	for i, word := range words {
		if _, err := g.WriteToUDPAddrPort([]byte(word), exit); err != nil {
			g.t.Fatal(err)
		}
		if _, err := f.Receive(into); err != nil || string(into[0].Data) != word || into[0].Order != places[i] {
			g.t.Fatalf("heard %q at %d, %v; want %q at %d", into[0].Data, into[0].Order, err, word, places[i])
		}
		name = into[0].Exit
	}
	return name
}

// The places count over all flows of the session; what goes by a flow that did not ask has none.
func TestPlacesCountOverAllFlows(t *testing.T) {
	s := start(t, nil)
	g, to := listenTarget(t)
	home, lte := s.way(t, s.token, nil), s.way(t, s.token, nil)
	a, b, old := orderedFlow(t, home, to, true), orderedFlow(t, lte, to, true), orderedFlow(t, lte, to, false)
	exit := g.sees(a, "from a")
	name := g.answers(a, exit, []string{"1", "2"}, []uint64{1, 2})
	g.sees(b, "from b")
	if other := g.answers(b, exit, []string{"3"}, []uint64{3}); other != name || name == 0 {
		t.Errorf("the exit is called %x by one flow and %x by another", name, other)
	}
	g.sees(old, "from old")
	if other := g.answers(old, exit, []string{"4"}, []uint64{0}); other != 0 {
		t.Errorf("who did not ask is told of the exit %x", other)
	}
	g.sees(a, "again")
	g.answers(a, exit, []string{"5"}, []uint64{4})
	for _, f := range []path.Flow{a, b, old} {
		f.Close()
	}
	for deadline := time.Now().Add(time.Minute); s.Status().FlowsOpen > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("flows do not end")
		}
	}
	c := orderedFlow(t, home, to, true)
	if next := g.answers(c, g.sees(c, "from c"), []string{"1"}, []uint64{1}); next == name || next == 0 {
		t.Errorf("a new count has the name %x, the old one %x", next, name)
	}
}

// What fits without its place only goes without it, and what does not fit at all is lost, as before.
func TestPlaceThatDoesNotFitIsLeftOut(t *testing.T) {
	s := start(t, nil)
	g, to := listenTarget(t)
	f := orderedFlow(t, s.way(t, s.token, nil), to, true)
	exit := g.sees(f, "from f")
	g.answers(f, exit, []string{"first"}, []uint64{1})
	into := make([]path.Inbound, 1)
	bare, last := 0, uint64(1)
	for size := 1300; size <= 1500; size++ {
		for _, payload := range [][]byte{make([]byte, size), []byte("mark")} {
			if _, err := g.WriteToUDPAddrPort(payload, exit); err != nil {
				t.Fatal(err)
			}
		}
		for mark := false; !mark; {
			if _, err := f.Receive(into); err != nil {
				t.Fatal(err)
			}
			if into[0].Order != 0 {
				if last++; into[0].Order != last {
					t.Fatalf("%d follows %d: what has no place leaves a gap", into[0].Order, last-1)
				}
			}
			switch mark = string(into[0].Data) == "mark"; {
			case mark && into[0].Order == 0:
				t.Fatal("a small datagram has no place")
			case !mark && into[0].Order == 0:
				bare++
			}
		}
	}
	if bare == 0 || bare > 20 {
		t.Errorf("%d sizes went without a place", bare)
	}
}

// Clients of other makes, and older ones, see nothing new.
func TestOthersSeeNoOrder(t *testing.T) {
	s := start(t, func(o *Options) { o.MaxFlows = 16 }) // the proxy may be late to see that one ended
	b := connect(t, s)
	at, _ := echo(t, "127.0.0.1:0")
	for name, c := range map[string]struct {
		session, offer string
		ordered        bool
	}{
		"no header":           {"", "", false},
		"an older client":     {"one", "", false},
		"another context":     {"two", "6", false},
		"no session to count": {"", masque.OrderOffer, false},
		"an offer":            {"three", masque.OrderOffer, true},
	} {
		stream, response := b.ask(func(r *http.Request) {
			if c.session != "" {
				r.Header.Set(masque.SessionHeader, c.session)
			}
			if c.offer != "" {
				r.Header.Set(masque.OrderHeader, c.offer)
			}
		}, to(at.Addr().String(), at.Port()))
		if _, ok := masque.ParseExitName(response.Header.Get(masque.OrderHeader)); ok != c.ordered {
			t.Errorf("%s: %v", name, response.Header)
		}
		if err := stream.SendDatagram([]byte{0, 'x'}); err != nil {
			t.Fatal(err)
		}
		want := []byte{0, 'x'}
		if c.ordered {
			want = []byte{2, 1, 'x'}
		}
		if d, err := stream.ReceiveDatagram(t.Context()); err != nil || !bytes.Equal(d, want) {
			t.Errorf("%s: %x, %v", name, d, err)
		}
		stream.Close()
	}
}
