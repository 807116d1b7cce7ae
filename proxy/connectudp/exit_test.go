package connectudp

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"time"

	"heddle/path"
)

// target is what the flows lead to.
type target struct {
	*net.UDPConn
	t *testing.T
}

// sees sends a word over a flow and gives where the target saw it come from.
func (g target) sees(f path.Flow, word string) netip.AddrPort {
	g.t.Helper()
	if _, err := f.Send([][]byte{[]byte(word)}); err != nil {
		g.t.Fatal(err)
	}
	buffer := make([]byte, 100)
	g.SetReadDeadline(time.Now().Add(time.Minute))
	n, from, err := g.ReadFromUDPAddrPort(buffer)
	if err != nil || string(buffer[:n]) != word {
		g.t.Fatalf("the target got %q, %v; want %q", buffer[:n], err, word)
	}
	return from
}

func TestFlowsOfOneSessionLeaveByOneExit(t *testing.T) {
	s := start(t, func(o *Options) { o.MaxFlows = 16 })
	socket, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	g := target{socket, t}
	to := socket.LocalAddr().(*net.UDPAddr).AddrPort()
	flowOf := func(way path.Path, session string) path.Flow {
		t.Helper()
		ctx, cancel := context.WithTimeout(path.WithSession(t.Context(), session), time.Minute)
		defer cancel()
		f, err := path.Open(ctx, way, to)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	home, lte := s.way(t, s.token, nil), s.way(t, s.token, nil) // two connections to the proxy
	a, b := flowOf(home, "one"), flowOf(lte, "one")
	exit := g.sees(a, "from a")
	if at := g.sees(b, "from b"); at != exit {
		t.Errorf("the target sees %v and %v for one session", exit, at)
	}
	if _, err := socket.WriteToUDPAddrPort([]byte("answer"), exit); err != nil {
		t.Fatal(err)
	}
	into := make([]path.Inbound, 1)
	if n, err := b.Receive(into); err != nil || n != 1 || string(into[0].Data) != "answer" || into[0].From != to {
		t.Errorf("the flow that spoke last got %d datagrams, %+v, %v", n, into[0], err)
	}
	for _, other := range []path.Flow{flowOf(home, "two"), flowOf(home, ""), flowOf(lte, "")} {
		if at := g.sees(other, "other"); at == exit {
			t.Errorf("another session leaves by the exit %v too", at)
		}
	}
	b.Close()
	if at := g.sees(a, "again"); at != exit {
		t.Errorf("after one flow ended the target sees %v, before %v", at, exit)
	}
	key := exitKey{user: "eve", session: "one", to: to}
	x, err := s.exits.enter(key, &s.counts)
	if err != nil {
		t.Fatal(err)
	}
	defer s.exits.leave(key, x)
	if at := x.socket.LocalAddr().(*net.UDPAddr).AddrPort(); at == exit {
		t.Error("a flow of another user who knows the session's name leaves by its exit")
	}
}
