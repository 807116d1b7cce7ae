package pacing

import (
	"math"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"heddle/internal/tcptest"
)

// fresh is what the kernel says of a connection that may send at once.
var fresh = flow{rtt: 100 * time.Millisecond, least: 100 * time.Millisecond, segment: 1000, window: 100}

// sharing makes members of a share. The kernel says of each what its flow is.
func sharing(flows ...*flow) (members []*Member) {
	var all Shares
	for _, f := range flows {
		members = append(members, all.join("link", func() (flow, error) { return *f, nil }))
	}
	return members
}

// takes starts to wait for a turn, and returns what tells how long that took.
func takes(turn *Turn, bytes int) <-chan time.Duration {
	out, began := make(chan time.Duration, 1), time.Now()
	go func() {
		turn.Wait(bytes)
		out <- time.Since(began)
	}()
	return out
}

// The oldest turn writes first, unless too much of its data waits in the kernel.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := fresh, fresh
		m := sharing(&a, &b)
		first, second := m[0].Begin(), m[1].Begin()
		second.waits = true // for what comes now
		if m[0].s.next(second) != true {
			t.Error("a turn waits for one that has nothing to write")
		}
		if first.waits = true; m[0].s.next(second) || !m[0].s.next(first) {
			t.Error("the second turn writes before the first")
		}
		a.unsent = mostUnsent + 1
		time.Sleep(lookAt)
		if m[0].s.next(first) || !m[0].s.next(second) {
			t.Error("what waits in the kernel holds the others up")
		}
		first.End()
		if a.unsent = 0; len(m[0].s.turns) != 1 {
			t.Errorf("there are %d turns", len(m[0].s.turns))
		}
	})
}

// The members together have no more under way than the window, but a turn does not wait forever.
func TestWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := fresh, fresh
		a.out = leastWindow
		m := sharing(&a, &b)
		turn := m[1].Begin()
		if took := <-takes(turn, 4000); took < longestTurn || took > longestTurn+lookAt {
			t.Errorf("with a full window it waits %v", took)
		}
		waits := takes(turn, 4000)
		time.Sleep(longestTurn / 2)
		m[0].s.mu.Lock() // which guards what the kernel is asked
		a.out = 0
		m[0].s.mu.Unlock()
		if took := <-waits; took > longestTurn/2+lookAt {
			t.Errorf("with an empty window it waits %v", took)
		}
		if s := m[0].s; s.out != 4000 || m[1].flow.unsent != 4000 {
			t.Errorf("%d bytes of 4000 count", s.out)
		}
	})
}

// A member that is far slower than others waits for them while the link is full, since the stream would wait for it.
func TestSlowMemberWaits(t *testing.T) {
	for _, c := range []struct {
		name   string
		window uint32
		queued bool
		want   bool
	}{{"as fast", 100, true, true}, {"half as fast", 50, true, true}, {"slow", 100/slowShare - 1, true, false}, {"slow, and the link is free", 100/slowShare - 1, false, true}} {
		a, b := fresh, fresh
		b.window = c.window
		m := sharing(&a, &b)
		m[0].Begin()
		turn := m[1].Begin()
		m[0].s.queued, turn.waits = c.queued, true
		if got := m[0].s.next(turn); got != c.want {
			t.Errorf("%s: its turn is %t", c.name, got)
		}
	}
}

// The window follows the rate at which bytes arrive. A loss shows that earlier rates were too high.
func TestWindowFollowsTheRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fresh
		s := sharing(&f)[0].s
		round := func(packets, lost uint32, rtt time.Duration) int {
			f.arrived, f.sent, f.lost, f.rtt = f.arrived+packets, f.sent+packets+lost, f.lost+lost, rtt
			time.Sleep(leastRound)
			s.look(time.Now())
			return s.window()
		}
		s.look(time.Now())
		second := fresh.least.Seconds() / leastRound.Seconds() // round trips in a round
		for _, c := range []struct {
			name          string
			packets, lost uint32
			rtt           time.Duration
			want          float64 // thousand bytes
		}{
			{"little", 10, 0, fresh.least, leastWindow / 1000.0},
			{"a free link", 200, 0, fresh.least, 200 * windowFree * second},
			{"a full one", 200, 0, 2 * fresh.least, 200 * windowQueued * second},
			{"an idle round", 1, 0, 2 * fresh.least, 200 * windowQueued * second},
			{"a few losses", 100, leastLost, 2 * fresh.least, 200 * windowQueued * second},
			{"losses", 100, 10, 2 * fresh.least, 100 * windowQueued * second},
		} {
			if got := round(c.packets, c.lost, c.rtt); math.Abs(float64(got)/1000-c.want) > 1 {
				t.Errorf("%s: the window has %d bytes, want %.0f thousand", c.name, got, c.want)
			}
		}
		time.Sleep(time.Hour)
		before := s.rounds
		if s.look(time.Now()); s.rounds != before {
			t.Error("the rate of an hour without turns counts")
		}
	})
}

// Connections share with those of the same key, and without a key or a socket with none.
func TestJoin(t *testing.T) {
	var all Shares
	c, err := net.Dial("tcp", tcptest.Serve(t, tcptest.Echo).String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	for name, m := range map[string]*Member{"a pipe": all.Join("link", near), "no key": all.Join(nil, c)} {
		if turn := m.Begin(); m != nil || turn != nil {
			t.Errorf("%s shares", name)
		}
		m.Begin().Wait(1 << 30)
		m.Begin().End()
		m.Leave()
	}
	a, b, other := all.Join("link", c), all.Join("link", c), all.Join("another", c)
	if a.s != b.s || a.s == other.s || len(all.of) != 2 {
		t.Errorf("there are %d shares", len(all.of))
	}
	a.Leave()
	other.Leave()
	if b.Leave(); len(all.of) != 0 {
		t.Errorf("%d shares are left", len(all.of))
	}
}
