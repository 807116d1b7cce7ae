package link

import (
	"testing"
	"testing/synctest"
	"time"
)

// No two connections are woken for the same bytes: the second one would send a block of padding.
func TestConnectionsShareWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Options{})
		with := line{delay: 40 * time.Millisecond, size: func(waiting int) int { return min(waiting, 28<<10) }}
		l, _, _ := w.open(with)
		defer w.finish()
		time.Sleep(time.Second) // it is open
		for range 3 {
			c, err := l.Join([]byte{1}, false)
			if err != nil {
				t.Fatal(err)
			}
			w.run(c, with)
		}
		time.Sleep(5 * time.Second) // the first rekey is over
		before := w.bridge.Stats().PaddingIn
		exchange(t, l, w.other(), content(3_000_000, 1), content(1000, 2))
		if padding := w.bridge.Stats().PaddingIn - before; padding > 30_000 {
			t.Errorf("%d bytes of padding for 3000000", padding)
		}
	})
}

// Connections by one path have a route in common, and no other ones do.
func TestRoute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Options{})
		l, _, _ := w.open(line{delay: 40 * time.Millisecond, size: func(int) int { return 10_000 }, every: 20 * time.Millisecond})
		defer w.finish()
		time.Sleep(time.Second)
		var all []*Conn
		for _, path := range []string{"dsl", "", "lte", "dsl"} {
			c, err := l.Join([]byte{1}, false)
			if err != nil {
				t.Fatal(err)
			}
			c.Via(path)
			all = append(all, c)
		}
		if all[0].Route() == nil || all[0].Route() != all[3].Route() || all[1].Route() != nil || all[2].Route() == all[0].Route() {
			t.Errorf("the routes are %p, %v, %p and %p", all[0].Route(), all[1].Route(), all[2].Route(), all[3].Route())
		}
		for _, c := range all {
			c.Leave(nil)
		}
		exchange(t, l, w.other(), content(1000, 1), content(1000, 2))
	})
}
