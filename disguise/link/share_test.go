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

// Room that one connection reserves is not for what others say that waits. It is free again when the connection leaves.
func TestReserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Options{})
		l, _, _ := w.open(line{delay: 40 * time.Millisecond, size: func(int) int { return 10_000 }, every: 20 * time.Millisecond})
		defer w.finish()
		time.Sleep(5 * time.Second)
		var conns []*Conn
		for range 2 {
			c, err := l.Join([]byte{1}, false)
			if err != nil {
				t.Fatal(err)
			}
			conns = append(conns, c)
		}
		a, b := conns[0], conns[1]
		exchanged := make(chan struct{})
		go func() {
			defer close(exchanged)
			exchange(t, l, w.other(), content(3_000_000, 1), content(1000, 2))
		}()
		synctest.Wait()
		all := b.Reserve(0)
		if waiting := b.Waiting(); all < 150_000 || all > waiting {
			t.Fatalf("%d bytes wait, and %d for others", waiting, all)
		}
		for _, test := range []struct{ room, beyond int }{{100_000, all - 100_000}, {1 << 20, 0}, {-1 << 20, all - 100_000}} {
			if a.Reserve(test.room); b.Reserve(0) != test.beyond {
				t.Errorf("with room for %d bytes more, %d wait for others, want %d", test.room, b.Reserve(0), test.beyond)
			}
		}
		if a.Leave(nil); b.Reserve(0) != all {
			t.Errorf("after it left, %d wait for others, want %d", b.Reserve(0), all)
		}
		b.Leave(nil)
		<-exchanged
	})
}
