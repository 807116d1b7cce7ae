package stripe

import (
	"io"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestQuotas(t *testing.T) {
	for _, c := range []struct {
		passed, trip, least time.Duration
		want                int
	}{
		{0, 50 * ms, 50 * ms, math.MaxInt},
		{0, 100 * ms, 50 * ms, math.MaxInt}, // no more than twice as far
		{0, 15 * ms, 1 * ms, math.MaxInt},   // too little to matter
		{0, 0, 0, math.MaxInt},              // nothing is known
		{0, 300 * ms, 60 * ms, 1},
		{119 * ms, 300 * ms, 60 * ms, 1},
		{120 * ms, 300 * ms, 60 * ms, 1000},
		{270 * ms, 300 * ms, 60 * ms, 2000},
		{420 * ms, 300 * ms, 60 * ms, 8000},
		{449 * ms, 300 * ms, 60 * ms, 8000},
		{450 * ms, 300 * ms, 60 * ms, math.MaxInt},
	} {
		if got := quotaOf(1000, c.passed, c.trip, c.least); got != c.want {
			t.Errorf("%d bytes after %v, with a round trip of %v beside one of %v; and it should be %d", got, c.passed, c.trip, c.least, c.want)
		}
	}
}

// A transfer that the near path could do by itself waits little for a distant one, which has half of an even part all the same,
// so that the near one does not see nearly all.
func TestFastDoesNotWaitForADistantPath(t *testing.T) {
	const rate, size = 3.125e6, 1_000_000
	even := time.Duration(size / 2 / (rate / 8) * float64(time.Second))
	var shares []float64
	for range 5 {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, ListenOptions{}, &road{delay: 10 * ms, rate: rate}, &road{delay: 150 * ms, rate: rate / 8})
			o := w.options()
			o.Schedule = Fast
			took, s := transfer(t, w, o, size)
			if took > even/2+300*ms {
				t.Errorf("it took %v, where an even part takes the distant path %v", took, even)
			}
			shares = append(shares, s.Paths[1].Up.Share)
			w.listener.Close()
		})
	}
	// Which goroutine runs first makes up to three of 66 segments.
	slices.Sort(shares)
	if far := shares[len(shares)/2]; far < 0.2 || far > 0.26 {
		t.Errorf("the distant path carried %.3f of all, the median of %.3f", far, shares)
	}
}

// Messages touch every path, also where they follow so fast upon each other that they count as one transfer.
func TestEachMessageTouchesADistantPath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, ListenOptions{}, &road{delay: 10 * ms}, &road{delay: 150 * ms})
		o := w.options()
		o.Schedule = Fast
		client, server := w.open(o)
		const messages = 20
		for range messages {
			if _, err := client.Write(noise(1, 100)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * ms)
		}
		if _, err := io.ReadFull(server, make([]byte, 100*messages)); err != nil {
			t.Fatal(err)
		}
		for _, p := range server.Status().Paths {
			if p.Down.Segments != messages {
				t.Errorf("path %s carried a part of %d messages of %d", p.Name, p.Down.Segments, messages)
			}
		}
		closeBoth(t, client, server)
		w.listener.Close()
	})
}
