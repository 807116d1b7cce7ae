package browser

import (
	"net/netip"
	"slices"
	"testing"

	"heddle/lab"
)

var via = []string{"--via", "home=if:home", "--via", "lte=if:lte", "--via", "office=if:office"}

func TestChromiumLoadsPagesWhilePathsSwitch(t *testing.T) {
	g := newGallery(t)
	stop := g.watch()
	p := g.split(append(slices.Clone(via), "--schedule", "round-robin", "--every", "100ms")...)
	// Most pages over one connection; and some over one of their own, whose handshake meets the switches.
	fresh := len(g.pages) - 4
	contexts := [][]string{g.pages[:fresh]}
	for _, page := range g.pages[fresh:] {
		contexts = append(contexts, []string{page})
	}
	pages := g.visit(patience, contexts...)
	for _, page := range pages {
		if err := whole(page); err != nil {
			t.Error(err)
		}
	}
	if len(pages) != len(g.pages) {
		t.Errorf("%d pages, not %d", len(pages), len(g.pages))
	}
	p.Stop()
	all := stop()
	separate(t, all)
	for _, out := range []bool{true, false} {
		shares := share(all, func(d datagram) bool { return d.out == out })
		for _, way := range lab.Ways {
			if shares[way] < 0.1 {
				t.Errorf("%s carried %.2f of the packets (out: %v)", way, shares[way], out)
			}
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.conns) != len(contexts) {
		t.Errorf("the server saw %d connections, not %d", len(g.conns), len(contexts))
	}
	var most map[netip.Addr]int
	for _, addrs := range g.conns {
		if len(addrs) > len(most) {
			most = addrs
		}
	}
	if len(most) != len(lab.Ways) {
		t.Errorf("no connection came from all %d networks: %v", len(lab.Ways), most)
	}
	if t.Failed() {
		t.Log(p.Log())
	}
}
