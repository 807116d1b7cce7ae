package browser

import (
	"slices"
	"testing"
	"time"

	"heddle/experiments/censor"
)

// The censored networks, and what splits over them alone.
var (
	censored = []string{"home", "lte"}
	between  = []string{"--via", "home=if:home", "--via", "lte=if:lte"}
)

func (g *gallery) censor() map[string]*censor.Censor {
	g.t.Helper()
	censors := map[string]*censor.Censor{}
	for _, way := range censored {
		c, err := censor.Start(g.t.Context(), g.Host(way+"-gw"), censor.Options{Names: []string{serverName}})
		if err != nil {
			g.t.Fatal(err)
		}
		g.t.Cleanup(func() {
			if err := c.Stop(); err != nil {
				g.t.Error(err)
			}
		})
		censors[way] = c
	}
	return censors
}

func TestChromiumBehindACensor(t *testing.T) {
	g := newGallery(t)
	censors := g.censor()
	stop := g.watch()
	p := g.split(append(slices.Clone(between), "--schedule", "round-robin", "--every", "50ms",
		"--path", "office=if:office", "--handshake-via", "office")...)
	for _, page := range g.visit(patience, g.pages[:3], g.pages[3:4]) {
		if err := whole(page); err != nil {
			t.Errorf("with the handshake elsewhere: %v\n%s", err, p.Log())
		}
	}
	p.Stop()
	all := stop()
	separate(t, all)
	shares := share(all, func(d datagram) bool { return !d.long })
	for _, way := range censored {
		if n := count(all, func(d datagram) bool { return d.way == way && d.long }); n > 0 {
			t.Errorf("%d QUIC long headers on %s", n, way)
		}
		if s := censors[way].Status(); s.Initials > 0 || s.Dropped > 0 || s.Packets == 0 || shares[way] < 0.1 {
			t.Errorf("%s carried %.2f of the session; its censor: %+v", way, shares[way], s)
		}
	}
	if n := count(all, func(d datagram) bool { return d.way == "office" && d.long && d.out }); n == 0 {
		t.Error("no handshake on office")
	}

	// Chromium cuts the server's name in pieces: a unit that ends between them would show no censor the whole.
	p = g.split(append(slices.Clone(between), "--schedule", "round-robin", "--every", "1m")...)
	for _, page := range g.visit(5*time.Second, g.pages[:1]) {
		if page.Error == "" {
			t.Errorf("with the handshake by the censored networks it loads: %+v\n%s", page, p.Log())
		}
	}
	if s := censors["home"].Status(); s.Names[0].QUIC == 0 || s.Dropped == 0 {
		t.Errorf("the censor on home read no name: %+v", s)
	}
}

func count(all []datagram, pick func(datagram) bool) (n int) {
	for _, d := range all {
		if pick(d) {
			n++
		}
	}
	return n
}
