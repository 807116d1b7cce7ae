package connlimit

import (
	"math/rand/v2"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// guest is a connection from an address, of which a test sees whether it was closed.
type guest struct {
	net.Conn
	from   net.Addr
	closed atomic.Bool
	says   string
}

func (g *guest) RemoteAddr() net.Addr { return g.from }
func (g *guest) Close() error         { g.closed.Store(true); return nil }
func (g *guest) Read(b []byte) (int, error) {
	return copy(b, g.says), nil
}

func from(text string) *guest {
	return &guest{from: net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(text), 1))}
}

// hall has places that end with the test.
func hall(t *testing.T, strangers, guests Limits) *Places {
	p := NewPlaces(guests)
	p.strangers, p.neighbors = newPool(strangers), newPool(strangers)
	t.Cleanup(func() {
		for _, l := range []*pool{&p.strangers, &p.neighbors, &p.guests} {
			for l.total > 0 {
				l.networks.top().oldest().Leave()
			}
		}
		if p.Count() != 0 {
			t.Errorf("%d places are taken after all left", p.Count())
		}
	})
	return p
}

// Who has to go when one more comes.
func TestWhoHasToGo(t *testing.T) {
	for name, c := range map[string]struct {
		limits Limits
		come   []string
		out    []int // of those who come
	}{
		"there is room":                     {Limits{3, 3, 3}, []string{"192.0.2.1", "192.0.2.1", "192.0.2.1"}, nil},
		"the oldest of a source":            {Limits{9, 9, 2}, []string{"192.0.2.2", "192.0.2.1", "192.0.2.1", "192.0.2.1"}, []int{1}},
		"the oldest of the fullest source":  {Limits{9, 3, 3}, []string{"192.0.2.1", "192.0.2.2", "192.0.2.2", "192.0.2.3"}, []int{1}},
		"another network has its own":       {Limits{9, 2, 2}, []string{"192.0.2.1", "192.0.2.2", "192.0.3.1"}, nil},
		"the oldest of the fullest network": {Limits{3, 3, 3}, []string{"192.0.3.1", "192.0.2.1", "192.0.2.2", "192.0.4.1", "192.0.5.1"}, []int{0, 1}},
		"the oldest where all have one":     {Limits{2, 2, 2}, []string{"192.0.2.1", "192.0.3.1", "192.0.4.1", "192.0.5.1"}, []int{0, 1}},
		"a source with many first": {Limits{11, 11, 11}, []string{"192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4", "192.0.2.5", "192.0.2.6",
			"192.0.3.1", "192.0.3.1", "192.0.3.1", "192.0.3.1", "192.0.3.1", "192.0.2.7", "192.0.2.8"}, []int{0, 6}},
		"a /64 is a source":  {Limits{9, 9, 1}, []string{"2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"}, []int{0}},
		"a /56 is a network": {Limits{9, 2, 2}, []string{"2001:db8::1", "2001:db8:0:1::1", "2001:db8:0:ff::1", "2001:db8:0:100::1"}, []int{0}},
		"IPv4 inside IPv6":   {Limits{9, 9, 1}, []string{"192.0.2.1", "::ffff:192.0.2.1"}, []int{0}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := hall(t, c.limits, Guests)
				var all []*guest
				for _, text := range c.come {
					g := from(text)
					all = append(all, g)
					p.Enter(g)
				}
				gone := map[int]bool{}
				for _, i := range c.out {
					gone[i] = true
				}
				for i, g := range all {
					if g.closed.Load() != gone[i] {
						t.Errorf("%d, %s, has to go: %v", i, c.come[i], g.closed.Load())
					}
				}
				if want := len(c.come) - len(c.out); p.Count() != want {
					t.Errorf("%d places are taken, not %d", p.Count(), want)
				}
			})
		})
	}
}

// Connections without an address share the places of all.
func TestNoAddress(t *testing.T) { synctest.Test(t, testNoAddress) }

func testNoAddress(t *testing.T) {
	p := hall(t, Limits{3, 1, 1}, Guests)
	first := &guest{from: &net.UnixAddr{}}
	p.Enter(first).Proved()
	if len(p.known) != 0 {
		t.Error("an address is known that is none")
	}
	var all []*guest
	for range 4 {
		all = append(all, &guest{from: &net.UnixAddr{}})
		p.Enter(all[len(all)-1])
	}
	if first.closed.Load() || !all[0].closed.Load() || all[1].closed.Load() {
		t.Error("not the oldest had to go")
	}
}

// Strangers take no place from those who proved a key, nor from their addresses.
func TestProvedKeepTheirPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := hall(t, Limits{2, 2, 2}, Limits{2, 2, 1})
		user, again := from("192.0.2.1"), from("192.0.2.1")
		place := p.Enter(user)
		place.Proved()
		place.Proved()
		second := p.Enter(again)
		for range 9 {
			p.Enter(from("192.0.2.2"))
			p.Enter(from("198.51.100.1"))
		}
		if user.closed.Load() || again.closed.Load() {
			t.Errorf("strangers elsewhere took the place: %v %v", user.closed.Load(), again.closed.Load())
		}
		for range 9 {
			p.Enter(from("192.0.2.1"))
		}
		if user.closed.Load() || !again.closed.Load() {
			t.Errorf("beside strangers at the same address: %v %v", user.closed.Load(), again.closed.Load())
		}
		second.Proved() // too late for this connection
		if n := p.guests.total; n != 1 {
			t.Errorf("%d guests", n)
		}
		p.Enter(from("192.0.2.1")).Proved()
		if !user.closed.Load() {
			t.Error("a guest has more places than it may")
		}
		time.Sleep(knownFor)
		synctest.Wait()
		p.Enter(from("192.0.2.1"))
		if p.strangers.total != 1 {
			t.Error("an address is known for ever")
		}
		for i := range 2 * maxKnown {
			p.remember(netip.AddrFrom4([4]byte{9, byte(i >> 16), byte(i >> 8), byte(i)}))
		}
		if len(p.known) != maxKnown || p.order.Len() != maxKnown {
			t.Errorf("%d and %d addresses are known", len(p.known), p.order.Len())
		}
	})
}

// A connection that sends nothing is closed. One that sends something keeps its place until it closes.
func TestFirstByte(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := hall(t, Strangers, Guests)
		silent, speaks, left := from("192.0.2.1"), from("192.0.2.2"), from("192.0.2.3")
		speaks.says = "hello"
		p.Enter(silent)
		place := p.Enter(speaks)
		p.Enter(left).Leave()
		time.Sleep(firstByte - 1)
		if n, err := place.Read(make([]byte, 1)); n != 1 || err != nil {
			t.Error(n, err)
		}
		if silent.closed.Load() {
			t.Error("closed too soon")
		}
		time.Sleep(firstByte)
		synctest.Wait()
		if !silent.closed.Load() || speaks.closed.Load() || left.closed.Load() || p.Count() != 1 {
			t.Errorf("closed: silent %v, speaks %v, left %v; %d places", silent.closed.Load(), speaks.closed.Load(), left.closed.Load(), p.Count())
		}
		if place.Close(); !speaks.closed.Load() || p.Count() != 0 {
			t.Error("it did not leave")
		}
	})
}

// Whatever comes and goes, in any order, the books agree.
func TestPlacesAreBounded(t *testing.T) { synctest.Test(t, testPlacesAreBounded) }

func testPlacesAreBounded(t *testing.T) {
	limits := Limits{All: 20, Network: 8, Source: 3}
	p, draw := hall(t, limits, limits), rand.New(rand.NewPCG(1, 2))
	var places []*Place
	for range 20_000 {
		switch i := len(places); {
		case i == 0 || draw.IntN(3) > 0:
			places = append(places, p.Enter(from(netip.AddrFrom4([4]byte{192, 0, byte(draw.IntN(9)), byte(draw.IntN(6))}).String())))
		case draw.IntN(4) == 0:
			places[draw.IntN(i)].Proved()
		default:
			places[draw.IntN(i)].Leave()
		}
		if len(places) > 50 {
			places = places[1:]
		}
		for _, l := range []*pool{&p.strangers, &p.neighbors, &p.guests} {
			ofSources, mostOfSource := counted(l.sources)
			ofNetworks, mostOfNetwork := counted(l.networks)
			if ofSources != l.total || ofNetworks != l.total || mostOfSource != l.sources.most || mostOfNetwork != l.networks.most {
				t.Fatalf("%d places, of sources %d (%d at most), of networks %d (%d at most)", l.total, ofSources, mostOfSource, ofNetworks, mostOfNetwork)
			}
			if l.total > limits.All || mostOfSource > limits.Source || mostOfNetwork > limits.Network {
				t.Fatalf("%d places are taken, %d of one network, %d of one source", l.total, mostOfNetwork, mostOfSource)
			}
		}
	}
}

func counted[K comparable](r ranking[K]) (total, most int) {
	for _, g := range r.of {
		total, most = total+g.places.Len(), max(most, g.places.Len())
	}
	return total, most
}

// Programs of this machine have one address, and so one of them may take all places but the newest.
func TestLocalPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewLocalPlaces()
		var all []*guest
		for range local.All + 1 {
			all = append(all, from("127.0.0.1"))
			p.Enter(all[len(all)-1])
		}
		for i, g := range all {
			if out := g.closed.Load(); out != (i == 0) {
				t.Errorf("connection %d of %d has to go: %v", i, len(all), out)
			}
		}
		time.Sleep(firstByte) // their silence ends them
		synctest.Wait()
		if p.Count() != 0 {
			t.Errorf("%d places are taken", p.Count())
		}
	})
}

// lingering is a guest of which a test sees whether it was reset.
type lingering struct {
	*guest
	reset bool
}

func (l *lingering) SetLinger(int) error { l.reset = true; return nil }

// Quiet places reset nobody, and let everybody be silent.
func TestQuietPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for quiet, p := range map[bool]*Places{true: NewQuietPlaces(Guests), false: NewPlaces(Guests)} {
			p.strangers = newPool(Limits{1, 1, 1})
			first, second := &lingering{guest: from("192.0.2.1")}, &lingering{guest: from("192.0.2.1")}
			p.Enter(first)
			place := p.Enter(second)
			if !first.closed.Load() || first.reset == quiet {
				t.Errorf("quiet %v: the first was closed %v, reset %v", quiet, first.closed.Load(), first.reset)
			}
			time.Sleep(2 * firstByte)
			synctest.Wait()
			if second.closed.Load() == quiet {
				t.Errorf("quiet %v: a silent one was closed %v", quiet, second.closed.Load())
			}
			place.Leave()
		}
	})
}
