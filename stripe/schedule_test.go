package stripe

import (
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"
)

// transfer sends size bytes upwards, and gives the time it took and how the client saw it.
func transfer(t *testing.T, w *world, o Options, size int) (time.Duration, Status) {
	t.Helper()
	client, server := w.open(o)
	start := time.Now()
	go func() {
		if err := send(client, make([]byte, size), 32<<10); err != nil {
			t.Error(err)
		}
	}()
	n, err := io.Copy(io.Discard, server)
	if n != int64(size) || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
	took := time.Since(start)
	closeBoth(t, client, server)
	return took, client.Status()
}

// What each schedule makes of unequal paths, on a clock that is not the machine's: 10 and 75 ms (one way), and rates in
// bytes a second. ideal is what the schedule could reach.
func TestSchedulesKeepTheirShares(t *testing.T) {
	const rate = 3.125e6
	for _, c := range []struct {
		name     string
		schedule string
		shares   string
		weights  []float64
		rates    []float64
		ideal    float64
		part     []float64 // of each path, -1 where it does not matter
	}{
		{"strict, equal rates", Strict, "", nil, []float64{rate, rate}, 2 * rate, []float64{.5, .5}},
		{"strict, unequal rates", Strict, "", nil, []float64{rate, rate / 4}, rate / 2, []float64{.5, .5}},
		{"fast, equal rates", Fast, "", nil, []float64{rate, rate}, 2 * rate, []float64{-1, -1}},
		{"fast, unequal rates", Fast, "", nil, []float64{rate, rate / 4}, rate * 1.25, []float64{.8, .2}},
		{"weighted", Weighted, "", []float64{3, 1}, []float64{rate, rate / 3}, rate * 4 / 3, []float64{.75, .25}},
		{"2of2", "", "2of2", nil, []float64{rate, rate}, 2 * rate, []float64{.5, .5}},
		{"2of3", "", "2of3", nil, []float64{rate, rate, rate}, 2 * rate, []float64{-1, -1, -1}},
		{"2of3, one slow", "", "2of3", nil, []float64{rate, rate, rate / 10}, 2 * rate, []float64{-1, -1, -1}},
		{"2of3, strict", Strict, "2of3", nil, []float64{rate, rate, rate}, 2 * rate, []float64{1. / 3, 1. / 3, 1. / 3}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var roads []*road
				for i, r := range c.rates {
					roads = append(roads, &road{delay: []time.Duration{10 * ms, 75 * ms, 30 * ms}[i], rate: r})
				}
				w := newWorld(t, ListenOptions{}, roads...)
				o := w.options()
				o.Schedule, o.Shares, o.Weights = c.schedule, c.shares, c.weights
				size := 8 << 20
				if c.schedule == Fast {
					size *= 2 // at first it holds a distant path back
				}
				took, s := transfer(t, w, o, size)
				got := float64(size) / took.Seconds() / c.ideal
				t.Logf("%.3f of what is possible", got)
				if c.schedule != Weighted && got < 0.85 || got > 1.001 {
					t.Errorf("%.3f of what is possible, in %v", got, took)
				}
				for i, p := range s.Paths {
					near := 0.02
					switch {
					case c.schedule == Strict || c.name == "2of2":
						near = 1e-4
					case c.schedule == Weighted:
						near = 0.1 // more than five standard deviations of so many draws
					}
					if want := c.part[i]; want >= 0 && (p.Up.Share < want-near || p.Up.Share > want+near) {
						t.Errorf("path %d carried %.4f, and should %.4f", i, p.Up.Share, want)
					}
				}
				if c.schedule == Strict && c.shares == "" {
					if a, b := s.Paths[0].Up, s.Paths[1].Up; a.Segments != b.Segments || a.Bytes > b.Bytes+1 || b.Bytes > a.Bytes+1 {
						t.Errorf("not equal to the byte: %+v, %+v", a, b)
					}
				}
				w.listener.Close()
			})
		})
	}
}

// A message of any size puts a segment on each path, and no path gets all of it.
func TestSmallMessagesTouchEveryPath(t *testing.T) {
	for _, schedule := range []string{Strict, Fast, Weighted} {
		for _, size := range []int{1, 2, 3, 100, 1000, 30_000, 3 * (DefaultSegment - 32), 6 * (DefaultSegment - 32)} {
			t.Run(fmt.Sprint(schedule, size), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, ListenOptions{}, &road{delay: 5 * ms}, &road{delay: 50 * ms}, &road{delay: 10 * ms})
					o := w.options()
					o.Schedule = schedule
					if schedule == Weighted {
						o.Weights = []float64{1, 0, 1} // also a path that is never drawn
					}
					client, server := w.open(o)
					go func() { _ = send(client, noise(1, size), size) }()
					got, err := io.ReadAll(server)
					if err != nil || len(got) != size {
						t.Errorf("%d bytes, %v", len(got), err)
					}
					for _, p := range server.Status().Paths {
						if payload := int(p.Down.Bytes) - int(p.Down.Segments)*32; p.Down.Segments < 1 || size > 1 && payload >= size {
							t.Errorf("path %s carried %d segments with %d of %d bytes", p.Name, p.Down.Segments, payload, size)
						}
					}
					closeBoth(t, client, server)
					w.listener.Close()
				})
			})
		}
	}
}

// On paths that are up the first byte takes half a round trip of the slowest one.
func TestFirstByteOnWarmPaths(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, ListenOptions{}, &road{delay: 10 * ms}, &road{delay: 75 * ms})
		start := time.Now()
		client, server := w.open(w.options())
		if took := time.Since(start); took > 6*75*ms+75*ms {
			t.Errorf("set-up took %v, beyond 3 round trips and the way of the hello", took)
		}
		start = time.Now()
		if _, err := client.Write(noise(1, 1000)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(server, make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took != 75*ms {
			t.Errorf("the message took %v, and the slowest path 75ms", took)
		}
		closeBoth(t, client, server)
		w.listener.Close()
	})
}
