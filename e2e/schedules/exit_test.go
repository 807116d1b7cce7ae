package schedules

import (
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"heddle/internal/polltest"
	"heddle/lab"
	"heddle/lab/labtest"
	"heddle/lab/peer"
)

// Core is where the three ways meet: the proxy there has an entry by each, and one exit.
var proxyAt = netip.MustParseAddrPort("192.0.2.254:4433")

// proxy starts a proxy on core, and gives its place as a path is written and the file of a token.
func (w *world) proxy() (place, token string) {
	w.t.Helper()
	m, err := peer.MasqueProxy(w.t.Context(), w.Host("core"), labtest.Heddle, w.dir, proxyAt)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(m.Stop)
	return m.Place, m.Token
}

// Three ways to one proxy: each network sees QUIC to the proxy and a part of it, and the server sees one client for each
// session that does not move, while the paths change.
func TestOneExit(t *testing.T) {
	t.Parallel()
	polltest.Again(t, func(int) error { return oneExit(t) }) // a path that a busy machine made late carries little
}

// oneExit returns why a network saw too little or too much.
func oneExit(t *testing.T) error {
	t.Helper()
	w := newWorld(t)
	server, relay := netip.AddrPortFrom(serverAddr, 7100), netip.MustParseAddrPort("127.0.0.1:7100")
	w.echo(server)
	place, token := w.proxy()
	stop := w.watch(true)
	args := []string{"split", "--listen", relay.String(), "--to", server.String(), "--schedule", "round-robin", "--every", "20ms"}
	for _, way := range lab.Ways {
		args = append(args, "--path", way+"=if:"+way, "--via", "by-"+way+"="+place+"@"+way, "--secret", "by-"+way+"="+token)
	}
	if _, err := w.start("client", "listening on", args...); err != nil {
		t.Fatal(err)
	}
	sessions := []traffic{{session: 1, to: relay, n: 1200, pace: time.Millisecond, window: throughProxy},
		{session: 2, to: relay, n: 1200, pace: time.Millisecond, window: throughProxy}}
	failed := make([]error, len(sessions))
	var running sync.WaitGroup
	for i, s := range sessions {
		running.Go(func() { failed[i] = w.send(s) })
	}
	running.Wait()
	for i, err := range failed {
		if err != nil {
			t.Fatalf("session %d: %v", i+1, err)
		}
	}
	seen := stop()
	clients := map[uint32]netip.AddrPort{}
	for _, p := range seen["server"] {
		session, number, ok := parse(p.payload)
		if !ok || !p.up(server.Port()) {
			continue
		}
		if before, had := clients[session]; had && before != p.from {
			t.Fatalf("number %d of session %d comes from %v, earlier ones from %v", number, session, p.from, before)
		}
		clients[session] = p.from
	}
	if len(clients) != 2 || clients[1] == clients[2] || clients[1].Addr() != proxyAt.Addr() || clients[2].Addr() != proxyAt.Addr() {
		t.Errorf("the server saw the sessions come from %v", clients)
	}
	return w.onlyProxy(seen, 2*2*1200)
}

// onlyProxy wants QUIC with the proxy and nothing else on each way. It returns why a way saw another part of the sessions' bytes, up and down,
// than it should. Packets are no measure: on a busy machine QUIC puts several datagrams into one.
func (w *world) onlyProxy(seen map[string][]packet, datagrams int) (few error) {
	w.t.Helper()
	carried, all := map[string]int{}, 0
	for _, way := range lab.Ways {
		for _, p := range seen[way] {
			client, other := p.from, p.to
			if other != proxyAt {
				client, other = other, client
			}
			if other != proxyAt || client.Addr() != own[way] {
				w.t.Fatalf("%s saw a packet from %v to %v", way, p.from, p.to)
			}
			if len(p.payload) == 0 || p.payload[0]&0x40 == 0 { // the fixed bit (RFC 9000, section 17)
				w.t.Fatalf("%s saw what is not QUIC, from %v to %v", way, p.from, p.to)
			}
			if !p.long() && len(p.payload) > datagramBytes {
				carried[way] += len(p.payload)
				all += len(p.payload)
			}
		}
	}
	if all < datagrams*datagramBytes {
		w.t.Fatalf("all ways saw %d bytes, less than those of %d datagrams", all, datagrams)
	}
	for _, way := range lab.Ways {
		if share := float64(carried[way]) / float64(all); share < 0.15 || share > 0.55 {
			few = fmt.Errorf("%s saw %d of %d bytes", way, carried[way], all)
		}
	}
	return few
}
