package link

import (
	"bytes"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A connection that carries nothing any more loses its data to another one, and takes part again when it revives.
func TestStalledConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Options{})
		var stuck atomic.Bool
		l, first, _ := w.open(line{delay: 20 * time.Millisecond, stuck: &stuck})
		bridge := w.other()
		if _, err := l.Write(content(1000, 1)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(bridge, make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		stuck.Store(true)
		began := time.Now()
		if _, err := l.Write(content(1000, 2)); err != nil {
			t.Fatal(err)
		}
		<-l.Starved()
		if took := time.Since(began); took < minRTO || took > 2*minRTO {
			t.Errorf("it took %v to notice", took)
		}
		w.join(line{delay: 20 * time.Millisecond})
		got := make([]byte, 1000)
		if _, err := io.ReadFull(bridge, got); err != nil || !bytes.Equal(got, content(1000, 2)) {
			t.Fatal(err)
		}
		if s := first.Stats(); !s.Stalled || s.Retransmitted != 1000 {
			t.Errorf("%+v", s)
		}
		stuck.Store(false)
		time.Sleep(time.Second)
		if s := first.Stats(); s.Stalled {
			t.Errorf("%+v", s)
		}
		if s := bridge.Stats(); s.Again != 1000 || s.Received != 2000 {
			t.Error(describe(s))
		}
		_ = l.Close()
		_ = bridge.CloseWrite()
		w.finish()
	})
}

// Connections that begin together are all told that they work.
func TestConnectionsBeginTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Options{})
		with := line{delay: 20 * time.Millisecond, every: 50 * time.Millisecond, size: func(int) int { return 2000 }} // so that questions come together
		l, _, _ := w.open(with)
		time.Sleep(time.Second)
		for range 3 {
			w.join(with)
		}
		time.Sleep(firstRTO - time.Millisecond)
		l.mu.Lock()
		for _, c := range l.conns {
			if !c.proved || !c.timeout.IsZero() {
				t.Errorf("connection %d does not know", c.serial)
			}
		}
		l.mu.Unlock()
		_ = l.Close()
		_ = w.other().CloseWrite()
		w.finish()
	})
}

// openBeside opens a link with two connections that work, and a third one on which nothing moves while with.stuck is set.
func openBeside(t *testing.T, stuck bool) (w *world, l, bridge *Link, third *Conn, with line) {
	t.Helper()
	w = newWorld(t, Options{})
	with.delay = 20 * time.Millisecond
	l, _, _ = w.open(with)
	time.Sleep(time.Second)
	w.join(with)
	time.Sleep(time.Second) // so that the bridge has them in the same order
	with.stuck = new(atomic.Bool)
	with.stuck.Store(stuck)
	third, _ = w.join(with)
	time.Sleep(time.Second)
	return w, l, w.other(), third, with
}

// A connection that brings nothing to the other side is found although it has no data of its own, and takes no acks then.
func TestSilentConnection(t *testing.T) {
	for name, works := range map[string]bool{"from its beginning": false, "later": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, l, bridge, silent, with := openBeside(t, !works)
				joins := silent.Stats().Useful
				talk := func() (again uint64) {
					before := bridge.Stats().Retransmitted
					for i := range 20 {
						if _, err := bridge.Write(content(1000, byte(i))); err != nil {
							t.Fatal(err)
						}
						if _, err := io.ReadFull(l, make([]byte, 1000)); err != nil {
							t.Fatal(err)
						}
						time.Sleep(minRTO / 20)
					}
					return bridge.Stats().Retransmitted - before
				}
				_ = talk()
				if acks := silent.Stats().Useful - joins; (acks > 0) != works {
					t.Errorf("the connection had %d bytes with acks", acks)
				}
				for with.stuck.Store(true); !silent.Stats().Stalled; time.Sleep(minRTO) {
					_ = talk()
				}
				if again := talk(); again > 0 {
					t.Errorf("the bridge sent %d bytes again", again)
				}
				with.stuck.Store(false)
				_ = l.Close()
				_ = bridge.CloseWrite()
				w.finish()
			})
		})
	}
}

// A connection goes on whose ack was lost with another one.
func TestLostAck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, l, bridge, _, with := openBeside(t, false)
		for with.stuck.Store(true); bridge.Stats().Retransmitted == 0; time.Sleep(2 * minRTO) {
			if _, err := bridge.Write([]byte{1}); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(l, make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(maxRTO)
		if s := bridge.Stats(); s.Conns[0].Stalled || s.Conns[1].Stalled {
			t.Error(describe(s))
		}
		with.stuck.Store(false)
		_ = l.Close()
		_ = bridge.CloseWrite()
		w.finish()
	})
}
