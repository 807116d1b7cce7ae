package connlimit

import (
	"net"
	"net/netip"
	"testing"
	"time"
)

func TestFailures(t *testing.T) {
	f := NewFailures()
	now := time.Now()
	f.now = func() time.Time { return now }
	one, near, far := netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::ffff"), netip.MustParseAddr("2001:db8:0:1::1")
	for range FailuresAtOnce {
		if !f.Take(one) {
			t.Fatal("blocked too soon")
		}
	}
	if f.Take(one) || f.Take(near) || !f.Take(far) {
		t.Error("a source is a network of 64 bits")
	}
	f.GiveBack(far)
	if len(f.of) != 1 {
		t.Errorf("%d sources are kept, and one has failed", len(f.of))
	}
	now = now.Add(RefillAfter)
	if !f.Take(one) || f.Take(one) {
		t.Error("blocked for ever, or not any more")
	}
	for i := range 3 * maxSources {
		f.Take(netip.AddrFrom4([4]byte{9, byte(i >> 16), byte(i >> 8), byte(i)}))
	}
	if len(f.of) > maxSources {
		t.Errorf("%d sources are kept", len(f.of))
	}
}

// A source that did nothing wrong is forgotten, also when its bucket filled meanwhile, and never has more tries than others.
func TestSourceWithoutFailuresIsForgotten(t *testing.T) {
	for name, c := range map[string]struct {
		takes, backs int
		after        time.Duration // since the first try
		kept         int
		left         float64
	}{
		"given back at once":        {1, 1, 0, 0, 0},
		"one of two given back":     {2, 1, 0, 1, FailuresAtOnce - 1},
		"half a try came back too":  {2, 1, RefillAfter / 2, 1, FailuresAtOnce - .5},
		"more came back than taken": {2, 2, RefillAfter / 2, 0, 0},
		"given back twice":          {1, 2, 0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			f, now, who := NewFailures(), time.Unix(1000, 0), netip.MustParseAddr("192.0.2.1")
			f.now = func() time.Time { return now }
			for i := range c.takes {
				if i == c.takes-1 {
					now = now.Add(c.after)
				}
				f.Take(who)
			}
			for range c.backs {
				f.GiveBack(who)
			}
			if len(f.of) != c.kept || c.kept > 0 && f.of[who].Left != c.left {
				t.Errorf("%d sources are kept: %+v", len(f.of), f.of[who])
			}
		})
	}
}

func TestCrowd(t *testing.T) {
	c := NewLimiter[string](2, 3)
	for i, step := range []struct {
		who  string
		want bool
	}{{"a", true}, {"a", true}, {"a", false}, {"b", true}, {"b", false}, {"c", false}} {
		if got := c.Acquire(step.who); got != step.want {
			t.Errorf("step %d: %v", i, got)
		}
	}
	c.Release("a")
	if !c.Acquire("c") || c.Count() != 3 {
		t.Error("a place that is free again is not given")
	}
	for _, who := range []string{"a", "b", "c"} {
		c.Release(who)
	}
	if len(c.of) != 0 || c.Count() != 0 {
		t.Errorf("%v is left", c.of)
	}
}

func TestSourceOf(t *testing.T) {
	for _, c := range []struct {
		from net.Addr
		want string
	}{
		{&net.TCPAddr{IP: net.ParseIP("::ffff:192.0.2.1"), Port: 1}, "192.0.2.1"},
		{&net.UDPAddr{IP: net.ParseIP("2001:db8::ffff:1"), Zone: "eth0"}, "2001:db8::"},
		{&net.UnixAddr{Name: "socket"}, "invalid IP"},
	} {
		if got := SourceOf(c.from).String(); got != c.want {
			t.Errorf("%v is of %s, not %s", c.from, got, c.want)
		}
	}
}

func TestLines(t *testing.T) {
	var l Lines
	now := time.Now()
	for i := range 2 * linesAtOnce {
		if got := l.Take(now); got != (i < linesAtOnce) {
			t.Errorf("line %d: %v", i, got)
		}
	}
	now = now.Add(linesEvery)
	if !l.Take(now) || l.Take(now) {
		t.Error("no line comes back, or more than one")
	}
}
