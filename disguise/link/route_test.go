package link

import (
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// dsl is a line of 5.6 Mbit/s towards the client.
var dsl = line{delay: 40 * time.Millisecond, rate: 700_000, path: "dsl", size: func(waiting int) int { return min(waiting, 14<<10) }}

// openAll opens a link over these lines, and waits until its first rekey is over. The bridge's connections are numbered in their order.
func openAll(w *world, lines ...line) *Link {
	l, _, _ := w.open(lines[0])
	time.Sleep(time.Second)
	for _, with := range lines[1:] {
		w.join(with)
		time.Sleep(time.Second)
	}
	return l
}

// sent returns how many bytes of the stream each connection of the bridge has sent.
func (w *world) sent() (each []uint64) {
	for _, c := range w.bridge.Stats().Conns {
		each = append(each, c.Sent)
	}
	return each
}

// One connection of a path carries the stream, and the same one the next time: it has a window.
func TestOneConnectionOfAPathCarriesTheStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Options{})
		l := openAll(w, dsl, dsl, dsl, dsl)
		for range 3 {
			go w.other().Write(make([]byte, 1_000_000))
			if n, err := io.ReadFull(l, make([]byte, 1_000_000)); err != nil {
				t.Fatal(n, err)
			}
			time.Sleep(10 * time.Second)
		}
		if each := w.sent(); slices.Max(each) < 2_900_000 {
			t.Errorf("the connections carried %d", each)
		}
		exchange(t, l, w.other(), nil, nil)
		w.finish()
	})
}

// A lead that does not keep up holds nothing back but what it has.
func TestSlowLeadIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Options{})
		slow := dsl
		slow.rate = 2000
		l := openAll(w, slow, dsl, dsl)
		_, _ = w.other().Write(make([]byte, 200_000))
		time.Sleep(time.Second)
		if got := l.Stats().Received; got < 180_000 {
			t.Errorf("%d bytes arrived, and the connections carried %d", got, w.sent())
		}
		_, _ = io.ReadFull(l, make([]byte, 200_000))
		exchange(t, l, w.other(), nil, nil)
		w.finish()
	})
}

// The schedule of the paths decides how much each network sees: a path gets as many turns as it has connections.
func TestTurnsOfPaths(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Options{})
		lte := dsl
		lte.path = "lte"
		l := openAll(w, dsl, dsl, dsl, lte)
		before := w.sent()
		for range 400 {
			_, _ = w.other().Write(make([]byte, 1000))
			_, _ = io.ReadFull(l, make([]byte, 1000))
			time.Sleep(50 * time.Millisecond)
		}
		each := w.sent()
		for i := range each {
			each[i] -= before[i]
		}
		if most := slices.Max(each); most < 290_000 || most > 310_000 || each[3] < 90_000 || each[3] > 110_000 {
			t.Errorf("the connections carried %d", each)
		}
		exchange(t, l, w.other(), nil, nil)
		w.finish()
	})
}
