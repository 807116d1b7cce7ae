package web

import (
	"testing"
	"testing/synctest"
	"time"
)

// arriving is a visit to which the bridge sends so many bytes per second, for a second, with a lag.
func arriving(t *testing.T, rate int, lag time.Duration) (v *visit, it *item, now time.Time) {
	t.Helper()
	f := shippedFactory(t)
	it = f.items[gallery(t, f).page.bulk[0].number]
	v, now = f.visit, time.Now()
	v.lag, v.at = lag, now
	v.flow, v.run = float64(rate)*v.span().Seconds(), rate
	return v, it, now
}

// A client asks for what comes to the bridge until a request is there, as long as the stream arrives, and counts with what the answers on the way bring.
func TestAsksAhead(t *testing.T) {
	const rate, lag = 500_000, 85 * time.Millisecond
	v, it, now := arriving(t, rate, lag)
	if n := v.ahead(now); n < rate*int(lag)/int(time.Second) || n > rate/2 {
		t.Errorf("at %d bytes a second and %v it asks for %d bytes ahead", rate, lag, n)
	}
	if n := v.ahead(now.Add(2 * time.Second)); n != 0 {
		t.Errorf("two seconds after the last byte it asks for %d bytes ahead", n)
	}
	if slow, _, now := arriving(t, leastBulk, lag); slow.ahead(now) != 0 {
		t.Errorf("a slow stream asks for %d bytes ahead", slow.ahead(now))
	}
	one := &flight{item: it}
	v.leaves(one, true, now)
	if n := v.expected(now); n != leastAnswer {
		t.Errorf("an answer with room for %d bytes is expected to bring %d", it.carries(), n)
	}
	one.arrived = it.carries() - 1000
	if n := v.expected(now); n != 1000 {
		t.Errorf("an answer with room for 1000 bytes is expected to bring %d", n)
	}
	one.arrived = 0
	late := now.Add(3 * time.Second)
	if n := v.expected(late); n > 1000 {
		t.Errorf("an answer that brings nothing is expected to bring %d", n)
	}
	if v.leaves(&flight{item: it}, false, late); v.expected(late) > 1000 {
		t.Errorf("what the bridge hides for a stranger is expected to bring %d", v.expected(late))
	}
	if v.ends(one); v.asked() != 0 {
		t.Errorf("after the answer %d bytes are asked for", v.asked())
	}
}

// A client asks for little beyond what the bridge holds while a stream is short. If the stream ends, that is padding.
func TestAsksForLittlePadding(t *testing.T) {
	const held = 300_000
	for _, c := range []struct{ run, want int }{{0, held}, {longRun, held}, {longRun + 1, held + 75_000}} {
		v, _, now := arriving(t, 500_000, 50*time.Millisecond)
		if v.held, v.run = held, c.run; v.wanted(now) > c.want || v.wanted(now) < c.want*9/10 {
			t.Errorf("after %d bytes a client wants %d, not %d", c.run, v.wanted(now), c.want)
		}
	}
	v, _, now := arriving(t, 500_000, 50*time.Millisecond)
	if v.run = 4 * leastBulk; v.wanted(now) != leastBulk {
		t.Errorf("after %d bytes a client wants %d", v.run, v.wanted(now))
	}
}

// A pause ends a run of a stream.
func TestRunEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, it, _ := arriving(t, 500_000, 85*time.Millisecond)
		one := &flight{item: it}
		v.leaves(one, true, time.Now())
		if v.took(one, 1000, 900); v.run != 500_900 {
			t.Errorf("the run has %d bytes", v.run)
		}
		time.Sleep(2*v.span() + 1)
		if v.took(one, 1000, 900); v.run != 900 {
			t.Errorf("after a pause the run has %d bytes", v.run)
		}
		if v.took(one, mostPadded, 0); v.run != 0 {
			t.Errorf("after padding the run has %d bytes", v.run)
		}
		v.took(one, 1000, 900)
		if v.leave(v.views[0]); v.run != 0 {
			t.Errorf("after the last connection the run has %d bytes", v.run)
		}
	})
}

// Padding shows that the bridge has no more, so nothing is asked for ahead.
func TestPaddingEndsTheRush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, it, now := arriving(t, 500_000, 85*time.Millisecond)
		one := &flight{item: it}
		v.leaves(one, true, now)
		for n := 0; n < mostPadded; n += hiddenPart {
			if v.ahead(time.Now()) == 0 {
				t.Fatalf("after %d bytes of padding nothing is asked for", n)
			}
			v.took(one, hiddenPart, 0)
		}
		if n := v.ahead(time.Now()); n != 0 {
			t.Errorf("after padding %d bytes are asked for ahead", n)
		}
		v.took(one, hiddenPart, hiddenPart)
		if v.took(one, 1<<30, 1<<30); v.ahead(time.Now()) == 0 || one.arrived != it.carries() {
			t.Errorf("after more of the stream %d bytes are asked for, and %d of %d arrived", v.ahead(time.Now()), one.arrived, it.carries())
		}
	})
}

// While the stream arrives, a request leaves before the bridge says that it holds something.
func TestRequestsAhead(t *testing.T) {
	for _, rate := range []int{0, 1 << 20} {
		v, _, now := arriving(t, rate, 85*time.Millisecond)
		v.poll = now.Add(time.Hour)
		one, _, _, err := v.next(v.views[0], nothing{}, now)
		if err != nil || (one != nil) != (rate > 0) || one != nil && one.carries() < leastBulk {
			t.Errorf("at %d bytes a second it asks for %+v, %v", rate, one, err)
		}
	}
}
