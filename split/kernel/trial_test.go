package kernel

import (
	"math"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"heddle/internal/bpf"
	"heddle/split/backend"
	"heddle/split/backend/backendtest"
)

func TestTrial(t *testing.T) {
	t.Parallel()
	w := backendtest.New(t)
	echo := w.NewEcho(t, backendtest.Server4)
	o := options(t, echo.At, "weighted", "10ms")
	o.Schedule.Weights = []float64{1, 0, 0}
	r := open(t, w, o).start()
	r.keepPlan()
	c := w.NewSocket(t, netip.AddrPort{}, netip.AddrPort{})
	tap := w.NewTap(t)
	m := r.session.maps
	// send sends datagrams of some bytes, and returns their ways. pause says that the session paused before the first.
	send := func(pause bool, sizes ...int) (ways []int) {
		t.Helper()
		for i, size := range sizes {
			last := uint64(math.MaxInt64) // no pause however late this process is
			if pause && i == 0 {
				last = 0
			}
			atomic.StoreUint64(&m.state.Last, last)
			tap.Reset()
			if _, err := c.WriteToUDPAddrPort([]byte(strings.Repeat("a", size)), echo.At); err != nil {
				t.Fatal(err)
			}
			if !tap.Await(func(all []backendtest.Packet) bool { return len(all) == 1 }) {
				t.Fatal("a datagram did not leave")
			}
			ways = append(ways, tap.Packets()[0].Way)
		}
		return ways
	}
	const small, large = 96, 257
	const forever = math.MaxInt64
	many := slices.Repeat([]int{small}, backend.BurstLimit+2)
	for name, c := range map[string]struct {
		burst, busy   bool
		pause         bool // before the first
		sizes, want   []int
		pause2        bool
		sizes2, want2 []int
	}{
		"one packet": {sizes: []int{large, small}, want: []int{2, 1}},
		"a burst": {burst: true, pause: true, sizes: []int{small, small, small}, want: []int{2, 2, 2},
			pause2: true, sizes2: []int{small, small}, want2: []int{1, 1}},
		"a burst that begins later": {burst: true, sizes: []int{small, small}, want: []int{1, 1},
			pause2: true, sizes2: []int{small, small}, want2: []int{2, 2}},
		"what the server answers ends it": {burst: true, pause: true, sizes: []int{small, large, small}, want: []int{2, 1, 1}},
		"it begins with that":             {burst: true, pause: true, sizes: []int{large, small}, want: []int{2, 1}},
		"a long burst": {burst: true, pause: true, sizes: many,
			want: append(slices.Repeat([]int{2}, backend.BurstLimit), 1, 1)},
		"no burst in a busy session": {burst: true, busy: true, sizes: []int{small, small}, want: []int{2, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			m.try(backend.Trial{Member: 1, Burst: c.burst}, forever)
			m.prolong(forever, !c.busy)
			if got := send(c.pause, c.sizes...); !slices.Equal(got, c.want) {
				t.Errorf("ways %v, want %v", got, c.want)
			}
			if got := send(c.pause2, c.sizes2...); !slices.Equal(got, c.want2) {
				t.Errorf("then ways %v, want %v", got, c.want2)
			}
			m.permit(forever)
			m.try(backend.Trial{Member: -1}, forever)
		})
	}
	t.Run("a stopped session", func(t *testing.T) {
		m.try(backend.Trial{Member: 1, Burst: true}, forever)
		m.permit(0)
		if m.trial() != -1 {
			t.Error("its trial goes on")
		}
		m.permit(forever)
	})
	t.Run("the end of a pause", func(t *testing.T) {
		before := atomic.LoadUint64(&m.state.Paused)
		if send(false, small); atomic.LoadUint64(&m.state.Paused) != before {
			t.Error("seen where there was none")
		}
		if send(true, small); atomic.LoadUint64(&m.state.Paused) <= before {
			t.Error("not seen")
		}
	})
	t.Run("pauses", func(t *testing.T) {
		now := func(ago time.Duration) uint64 { return bpf.Monotonic() - uint64(ago) }
		for name, c := range map[string]struct {
			last, paused time.Duration // ago; a last packet to come is one however late this process is
			want         bool
		}{
			"a stream":           {-time.Hour, time.Hour, false},
			"a burst":            {-time.Hour, -time.Hour, true},
			"between two bursts": {time.Minute, 2 * time.Minute, true},
		} {
			atomic.StoreUint64(&m.state.Last, now(c.last))
			atomic.StoreUint64(&m.state.Paused, now(c.paused))
			if got := m.pauses(); got != c.want {
				t.Errorf("%s: %v", name, got)
			}
		}
	})
}
