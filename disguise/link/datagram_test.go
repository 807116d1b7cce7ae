package link

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// A cover of datagrams loses some, swaps some, and repeats some. Small ones have no room for a hello.
func TestStreamsOverDatagrams(t *testing.T) {
	for _, c := range []struct{ loss, swap, again, least, most int }{{0, 0, 0, 1200, 1200}, {10, 10, 10, 160, 200}, {30, 30, 0, 20, 1400}, {5, 50, 50, 160, 5000}} {
		for _, conns := range []int{1, 3} {
			t.Run(fmt.Sprintf("%+v/%d", c, conns), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, Options{})
					w.seen = map[uint64]struct{}{}
					sizes := rand.New(rand.NewPCG(3, uint64(c.loss)))
					with := line{delay: 30 * time.Millisecond, every: 5 * time.Millisecond, datagrams: true, loss: c.loss, swap: c.swap, again: c.again,
						size: func(int) int {
							w.mu.Lock()
							defer w.mu.Unlock()
							return c.least + sizes.IntN(c.most-c.least+1)
						}}
					l, _, _ := w.open(with)
					bridge := w.other()
					for !l.Stats().PostQuantum {
						time.Sleep(time.Second)
					}
					for range conns - 1 {
						w.join(with)
					}
					const down = 400_000 // enough that the share of what goes again is steady
					exchange(t, l, bridge, content(20_000, 1), content(down, 2))
					w.finish()
					if len(w.errs) > 0 {
						t.Error(w.errs)
					}
					if s := bridge.Stats(); s.Retransmitted > 0 && c.loss == 0 || s.Retransmitted > down*uint64(c.loss+1)/50 {
						t.Error(describe(s))
					}
				})
			})
		}
	}
}

// A connection that joins over datagrams shows the bridge that its client receives, also if the bridge has nothing to send. One
// whose client receives nothing does not.
func TestReached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Options{})
		with := line{delay: 10 * time.Millisecond, every: 5 * time.Millisecond, datagrams: true, size: func(int) int { return 400 }}
		l, _, _ := w.open(with)
		bridge := w.other()
		time.Sleep(5 * time.Second) // the rekey is over
		reached := func() (n int) {
			for _, c := range bridge.conns {
				if c.Reached() {
					n++
				}
			}
			return n
		}
		if n := reached(); n != 1 {
			t.Errorf("%d connections of the first", n)
		}
		w.join(with)
		deaf, err := l.Join([]byte{1}, true)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			b := make([]byte, 400)
			if _, err := deaf.Fill(b); err != nil {
				t.Fatal(err)
			}
			if far, _, err := w.accept(b, true); err == nil {
				_, _ = far.Fill(b)
			}
		}
		time.Sleep(time.Second)
		if n := reached(); n != 2 || len(bridge.conns) != 3 {
			t.Errorf("%d of %d connections", n, len(bridge.conns))
		}
		exchange(t, l, bridge, nil, nil)
		w.finish()
	})
}

func TestDatagramsArriveWholeOrNotAtAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Options{})
		got := make(chan []byte, 1000)
		w.far = func(o *Options) {
			o.Datagram = func(flow uint16, p []byte) {
				if flow != 7 {
					t.Error(flow)
				}
				got <- bytes.Clone(p)
			}
		}
		l, _, end := w.open(line{delay: 10 * time.Millisecond})
		bridge := w.other()
		time.Sleep(time.Second)
		for _, n := range []int{0, 1, 1500, maxDatagram} {
			if err := l.SendDatagram(7, content(n, 1)); err != nil {
				t.Fatal(err)
			}
			if p := <-got; !bytes.Equal(p, content(n, 1)) {
				t.Errorf("%d bytes of %d came", len(p), n)
			}
		}
		if err := l.SendDatagram(7, make([]byte, maxDatagram+1)); err == nil {
			t.Error("it is too long")
		}
		end(nil)
		for range 100 { // nothing carries them
			_ = l.SendDatagram(7, make([]byte, 10_000))
		}
		if l.dgbytes > queueBytes {
			t.Errorf("%d bytes wait", l.dgbytes)
		}
		time.Sleep(datagramLife)
		_ = l.SendDatagram(7, []byte("in time"))
		time.Sleep(time.Millisecond)
		w.join(line{delay: 10 * time.Millisecond})
		if p := <-got; string(p) != "in time" {
			t.Errorf("%d bytes came late", len(p))
		}
		if s := l.Stats(); s.DatagramsDropped != 100 || s.DatagramsOut != 5 || bridge.Stats().DatagramsIn != 5 {
			t.Error(describe(s))
		}
		_ = l.Close()
		_ = bridge.Close()
		w.finish()
		if err := l.SendDatagram(7, nil); err != net.ErrClosed {
			t.Error(err)
		}
	})
}
