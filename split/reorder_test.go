package split

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"heddle/path"
	"heddle/schedule"
)

const orderWindow = 50 * time.Millisecond

// counted is a reorderer that numbered datagrams go through: it notes the numbers that it gives.
type counted struct {
	*reorderer
	t   *testing.T
	got []uint64
}

func newCounted(t *testing.T) *counted {
	n := &counted{t: t}
	n.reorderer = newReorderer(orderWindow, 3, func(datagrams [][]byte) {
		for _, d := range datagrams {
			n.got = append(n.got, binary.BigEndian.Uint64(d))
		}
	})
	return n
}

// arrive takes a datagram of exit 1 for each number.
func (n *counted) arrive(i int, numbers ...uint64) {
	for _, number := range numbers {
		n.arriveFrom(1, i, number)
	}
}

func (n *counted) arriveFrom(exit uint64, i int, number uint64) {
	buffer := binary.BigEndian.AppendUint64(nil, number)
	n.arrived(i, []path.Inbound{{Data: buffer, Size: len(buffer), Exit: exit, Order: number}})
	clear(buffer) // it is the receiver's again
}

// want compares what was given since the last call.
func (n *counted) want(numbers ...uint64) {
	n.t.Helper()
	synctest.Wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	if !slices.Equal(n.got, numbers) {
		n.t.Errorf("%v was given, want %v", n.got, numbers)
	}
	n.got = nil
}

func TestNumbersTellTheOrder(t *testing.T) {
	type step struct {
		path int
		in   []uint64
		wait time.Duration // before
		want []uint64
	}
	for _, c := range []struct {
		name  string
		steps []step
	}{
		{"in order", []step{{0, []uint64{1, 2}, 0, []uint64{1, 2}}, {1, []uint64{3}, 0, []uint64{3}}}},
		{"a faster path waits for all of the slower one", []step{
			{0, []uint64{1, 2}, 0, []uint64{1, 2}},
			{1, []uint64{6, 7}, time.Millisecond, nil},
			{0, []uint64{3}, 20 * time.Millisecond, []uint64{3}},
			{1, []uint64{8}, time.Millisecond, nil},
			{0, []uint64{4, 5}, 20 * time.Millisecond, []uint64{4, 5, 6, 7, 8}},
		}},
		{"three paths", []step{
			{0, []uint64{1}, 0, []uint64{1}}, {2, []uint64{5}, 0, nil}, {1, []uint64{3, 4}, 0, nil}, {0, []uint64{2}, 0, []uint64{2, 3, 4, 5}},
		}},
		{"a short gap within one path is a loss", []step{{0, []uint64{1, 5}, 0, []uint64{1, 5}}, {0, []uint64{6}, 0, []uint64{6}}}},
		{"and a visit elsewhere where the path was silent meanwhile", []step{
			{1, []uint64{1}, 0, []uint64{1}}, {0, []uint64{2}, 0, []uint64{2}}, {0, []uint64{4}, drained, nil}, {1, []uint64{3}, 0, []uint64{3, 4}},
		}},
		{"a long one is waited for while another path may bring it", []step{
			{0, []uint64{1}, 0, []uint64{1}}, {1, []uint64{2}, 0, []uint64{2}}, {1, []uint64{7}, 0, nil},
			{0, []uint64{8}, time.Millisecond, []uint64{7, 8}},
		}},
		{"and no longer than the window", []step{
			{0, []uint64{1}, 0, []uint64{1}}, {1, []uint64{2}, 0, []uint64{2}}, {1, []uint64{7}, 0, nil},
			{1, []uint64{8}, orderWindow - 1, nil}, {1, []uint64{9}, 1, []uint64{7, 8, 9}},
		}},
		{"what is late is given at once", []step{
			{0, []uint64{1}, 0, []uint64{1}}, {1, []uint64{2}, 0, []uint64{2}}, {1, []uint64{8}, 0, nil},
			{0, []uint64{3}, orderWindow + 1, []uint64{8, 3}}, {0, []uint64{4}, 0, []uint64{4}}, {1, []uint64{9}, 0, []uint64{9}},
		}},
		{"what waits behind a gap does not wait for a second one anew", []step{
			{0, []uint64{1}, 0, []uint64{1}}, {1, []uint64{2}, 0, []uint64{2}}, {1, []uint64{20}, 0, nil},
			{1, []uint64{10}, orderWindow - 1, nil}, {2, []uint64{15}, 0, nil}, {2, []uint64{21}, 1, []uint64{10, 15, 20, 21}},
		}},
		{"a path that is quiet for long is not waited for", []step{
			{0, []uint64{1}, 0, []uint64{1}}, {1, []uint64{2}, 0, []uint64{2}}, {1, []uint64{9}, atWork, []uint64{9}},
		}},
		{"duplicates", []step{
			{0, []uint64{1}, 0, []uint64{1}}, {1, []uint64{2, 1}, 0, []uint64{2, 1}}, {1, []uint64{9}, 0, nil}, {2, []uint64{9}, 0, []uint64{9}},
			{0, []uint64{9}, 0, []uint64{9, 9}},
		}},
		{"the count begins where it is first heard", []step{{0, []uint64{500, 501}, 0, []uint64{500, 501}}, {1, []uint64{499}, 0, []uint64{499}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newCounted(t)
				for _, s := range c.steps {
					time.Sleep(s.wait)
					n.arrive(s.path, s.in...)
					n.want(s.want...)
				}
			})
		})
	}
}

func TestHeldIsGivenWithoutAnotherArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newCounted(t)
		n.arrive(0, 1)
		n.arrive(1, 2, 10)
		time.Sleep(orderWindow)
		n.want(1, 2, 10)
	})
}

// A number from nowhere must neither stall the session, nor fill memory, nor end the order for good.
func TestHostileNumbers(t *testing.T) {
	for _, c := range []struct {
		name    string
		numbers []uint64
	}{
		{"one far ahead", []uint64{1 << 63}},
		{"the last", []uint64{math.MaxUint64}},
		{"far behind", []uint64{math.MaxUint64 - 1<<40}},
		{"a count of its own", []uint64{1 << 40, 1<<40 + 1, 1<<40 + 2}},
		{"just within the span", []uint64{3 + span}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newCounted(t)
				n.arrive(0, 1, 2)
				n.arrive(2, c.numbers...)
				time.Sleep(orderWindow)
				given := append([]uint64{1, 2}, c.numbers...)
				n.want(given...)
				next := uint64(3)
				for range 2 * span { // a count that a forger moved comes back
					n.arrive(0, next)
					next++
				}
				synctest.Wait()
				if len(n.got) != 2*span {
					t.Errorf("%d of %d were given at once", len(n.got), 2*span)
				}
				n.got = nil
				n.arrive(1, next)
				n.arrive(0, next+5)
				n.arrive(1, next+1)
				n.arrive(1, next+2, next+3, next+4)
				n.want(next, next+1, next+2, next+3, next+4, next+5)
			})
		})
	}
}

func TestWhatIsHeldIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newCounted(t)
		n.arrive(0, 1)
		n.arrive(1, 2)
		for exit := uint64(1); exit <= 2*maxStreams; exit++ {
			n.arriveFrom(exit, 0, 1)
			n.arriveFrom(exit, 1, 2)
			for k := range uint64(3 * heldLimit) {
				n.arriveFrom(exit, 1, 10+2*exit+10*k)
			}
			held := 0
			for _, s := range n.exact.streams {
				held += len(s.held)
				if len(s.held) >= heldLimit {
					t.Fatalf("a stream holds %d", len(s.held))
				}
			}
			if held > maxStreams*heldLimit {
				t.Fatalf("%d are held", held)
			}
		}
		time.Sleep(orderWindow)
		synctest.Wait()
		if want := 2 + 2*maxStreams*(2+3*heldLimit); len(n.got) != want {
			t.Errorf("%d were given, of %d", len(n.got), want)
		}
	})
}

func TestAnotherCountIsAnotherStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newCounted(t)
		n.arrive(0, 7)
		n.arrive(1, 20) // waits for what is between
		n.arriveFrom(2, 1, 1)
		n.want(7, 1)
		n.arrive(0, 8)
		n.arriveFrom(2, 0, 2)
		n.want(8, 2)
		time.Sleep(orderWindow)
		n.want(20)
	})
}

// What can be known of a datagram's place.
func TestPlaced(t *testing.T) {
	transport := binary.LittleEndian.AppendUint64([]byte{4, 0, 0, 0, 9, 0, 0, 1}, 77)
	transport = append(transport, make([]byte, 16)...)
	handshake := func(kind byte, length int) []byte { return append([]byte{kind, 0, 0, 0}, make([]byte, length-4)...) }
	quic := bytes.Repeat([]byte{0x45}, 1200)
	for _, c := range []struct {
		name     string
		datagram []byte
		in       path.Inbound
		id       streamID
		number   uint64
		known    bool
		free     bool
	}{
		{"WireGuard", transport, path.Inbound{}, streamID{true, 0x01000009}, 77, true, false},
		{"WireGuard through an exit", transport, path.Inbound{Exit: 5, Order: 3}, streamID{true, 0x01000009}, 77, true, false},
		{"a WireGuard datagram cut short", transport[:31], path.Inbound{}, streamID{}, 0, false, false},
		{"a response", handshake(2, 92), path.Inbound{Exit: 5, Order: 3}, streamID{}, 0, false, true},
		{"something of its type", handshake(2, 93), path.Inbound{}, streamID{}, 0, false, false},
		{"a cookie", handshake(3, 64), path.Inbound{}, streamID{}, 0, false, true},
		{"an initiation", handshake(1, 148), path.Inbound{}, streamID{}, 0, false, true},
		{"QUIC", quic, path.Inbound{}, streamID{}, 0, false, false},
		{"QUIC through an exit", quic, path.Inbound{Exit: 5, Order: 3}, streamID{id: 5}, 3, true, true},
		{"QUIC through an exit, too large for its number", quic, path.Inbound{Exit: 5}, streamID{id: 5}, 0, false, true},
		{"short", []byte{4}, path.Inbound{}, streamID{}, 0, false, false},
	} {
		id, number, known, free := placed(c.datagram, c.in)
		if id != c.id || number != c.number || known != c.known || free != c.free {
			t.Errorf("%s: %v %d %v %v", c.name, id, number, known, free)
		}
	}
}

// A relay asks its paths for the order only where it is wanted, and then keeps it.
func TestRelayKeepsTheOrder(t *testing.T) {
	for _, c := range []struct {
		window time.Duration
		auto   bool
	}{{0, false}, {0, true}, {time.Minute, false}} {
		_, paths := closedFake(t, 2, nil)
		r := startRelay(t, fakeServer, func(o *RelayOptions) {
			o.Reorder = c.window
			if c.auto {
				o.Schedule.Every = schedule.Every{Period: schedule.AutoPeriod, Auto: true}
			}
			for i := range paths {
				o.Via[i] = path.Spec{Name: o.Via[i].Name, Kind: "fake", Arg: paths[i].name}
			}
			o.Via = o.Via[:2]
		})
		client := client(t, r.Addr())
		client.Write([]byte("begin"))
		for deadline := time.Now().Add(20 * time.Second); len(paths[0].take())+len(paths[1].take()) == 0; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("the session does not begin")
			}
		}
		for _, p := range paths {
			p.mu.Lock()
			if p.wanted != (c.window > 0 || c.auto) {
				t.Errorf("with %+v a path is asked for the order: %v", c, p.wanted)
			}
			p.mu.Unlock()
		}
		if c.window == 0 {
			continue
		}
		buffer := make([]byte, 1)
		read := func() string {
			n, err := client.Read(buffer)
			if err != nil {
				t.Fatal(err)
			}
			return string(buffer[:n])
		}
		paths[0].putOrdered(fakeServer, []byte("1"), 7, 1)
		got := read()
		paths[1].putOrdered(fakeServer, []byte("3"), 7, 3)
		paths[1].putOrdered(fakeServer, []byte("4"), 7, 4)
		paths[1].putOrdered(fakeServer, []byte("x"), 7, 0) // without a place: at once
		got += read()
		paths[0].putOrdered(fakeServer, []byte("2"), 7, 2)
		for range 3 {
			got += read()
		}
		if got != "1x234" {
			t.Errorf("the client got %q", got)
		}
	}
}

// By itself "auto" holds what proxies have numbered, and nothing else.
func TestAutoHoldsWhatIsNumbered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := closedFake(t, 2, func(o *Options) { o.Schedule.Every = schedule.Every{Period: schedule.AutoPeriod, Auto: true} })
		var got []string
		order := s.reorderer(func(datagrams [][]byte) {
			for _, d := range datagrams {
				got = append(got, string(d))
			}
		})
		arrive := func(i int, datagram string, exit, number uint64) {
			order.arrived(i, []path.Inbound{{Data: []byte(datagram), Size: len(datagram), Exit: exit, Order: number}})
		}
		arrive(0, "1", 7, 1)
		arrive(1, "3", 7, 3)
		arrive(0, "a", 0, 0)
		arrive(1, "b", 0, 0) // a guess holds what comes after the first one of another path
		arrive(1, "c", 0, 0)
		arrive(0, "2", 7, 2)
		arrive(1, "5", 7, 5)
		time.Sleep(autoReorder)
		synctest.Wait()
		if want := []string{"1", "a", "b", "c", "2", "3", "5"}; !slices.Equal(got, want) {
			t.Errorf("%q was given, want %q", got, want)
		}
	})
}

// TestAnyArrivals lets three paths deliver a numbered stream with delays, losses and duplicates: all that arrives is
// given once, in order where nothing was lost, and within the window.
func TestAnyArrivals(t *testing.T) {
	for seed := range uint64(20) {
		for _, loss := range []float64{0, 0.05} {
			t.Run(fmt.Sprintf("seed %d, loss %v", seed, loss), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { anyArrivals(t, rand.New(rand.NewPCG(seed, 1)), loss) })
			})
		}
	}
}

func anyArrivals(t *testing.T, rng *rand.Rand, loss float64) {
	type flight struct {
		at     time.Duration
		path   int
		number uint64
	}
	var flights []flight
	delay := [3]time.Duration{time.Millisecond, 11 * time.Millisecond, 31 * time.Millisecond}
	at, by := time.Duration(0), 0
	for number := uint64(1); number <= 3000; number++ {
		if rng.IntN(20) == 0 {
			by = rng.IntN(3)
		}
		at += 200 * time.Microsecond
		if rng.Float64() >= loss {
			flights = append(flights, flight{at + delay[by], by, number})
		}
	}
	slices.SortStableFunc(flights, func(a, b flight) int { return int(a.at - b.at) })
	n := newCounted(t)
	began := time.Now()
	for _, f := range flights {
		time.Sleep(f.at - time.Since(began))
		n.arrive(f.path, f.number)
	}
	time.Sleep(orderWindow)
	synctest.Wait()
	if len(n.got) != len(flights) {
		t.Fatalf("%d arrived, %d were given", len(flights), len(n.got))
	}
	overtaken := 0
	for i := 1; i < len(n.got); i++ {
		if n.got[i] < n.got[i-1] {
			overtaken++
		}
	}
	// The first to arrive says where the count begins; what a slower path brings of before is late.
	if limit := int(delay[2] / (200 * time.Microsecond)); loss == 0 && overtaken > limit || overtaken > limit+len(flights)/100 {
		t.Errorf("%d of %d came after a later one", overtaken, len(flights))
	}
}

// FuzzReorder takes any datagrams, in ten bytes each: path and pause, kind, and number. Each is given once, and what is
// held is bounded.
func FuzzReorder(f *testing.F) {
	f.Add([]byte{0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 9, 2, 1, 255, 0, 0, 0, 0, 0, 0, 9})
	f.Add([]byte{8, 0, 0, 0, 0, 0, 0, 0, 0, 1, 17, 0, 128, 0, 0, 0, 0, 0, 0, 9, 2, 3, 255, 0, 0, 0, 0, 0, 0, 9})
	f.Fuzz(func(t *testing.T, script []byte) {
		now, given := time.Unix(0, 0), map[string]int{}
		out := [][]byte{}
		exact, guess := newSequencer(orderWindow, 3), newSilence(orderWindow)
		arrived := 0
		for ; len(script) >= 10; script = script[10:] {
			now = now.Add(time.Duration(script[0]>>4) * 10 * time.Millisecond)
			number := binary.BigEndian.Uint64(script[2:])
			in := path.Inbound{Exit: uint64(script[1] & 15), Order: number}
			datagram := fmt.Appendf(nil, "%d", arrived)
			if script[1]>>4 == 0 {
				datagram = append(binary.LittleEndian.AppendUint64([]byte{4, 0, 0, 0, 0, 0, 0, script[1]}, number), fmt.Sprintf("%20d", arrived)...)
			}
			arrived++
			id, number, known, free := placed(datagram, in)
			switch i := int(script[0] % 3); {
			case known:
				out = exact.take(now, i, id, number, datagram, out)
			case !free:
				out = guess.take(now, i, datagram, out)
			default:
				out = append(out, datagram)
			}
			for _, s := range exact.streams {
				if len(s.held) > 0 && now.Sub(s.held[0].since) > orderWindow+atWork || len(s.held) >= heldLimit {
					t.Fatalf("%d held since %v", len(s.held), now.Sub(s.held[0].since))
				}
			}
			if len(exact.streams) > maxStreams {
				t.Fatalf("%d streams", len(exact.streams))
			}
			out = exact.advance(now, guess.advance(now, out))
		}
		now = now.Add(orderWindow)
		for _, d := range exact.advance(now, guess.advance(now, out)) {
			given[string(d)]++
		}
		for d, n := range given {
			if n != 1 {
				t.Errorf("%q was given %d times", d, n)
			}
		}
		if len(given) != arrived {
			t.Errorf("%d of %d were given", len(given), arrived)
		}
	})
}
