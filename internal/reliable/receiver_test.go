package reliable

import (
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

var start = time.Unix(1000, 0)

func newReceiver(change func(*ReceiverOptions)) *Receiver {
	o := ReceiverOptions{Window: 1000, Widest: 1000, Ahead: 8}
	if change != nil {
		change(&o)
	}
	return NewReceiver(o)
}

// unitOf is unit number n of a stream whose units have so many bytes.
func unitOf(n, size int) Unit {
	return Unit{Number: uint64(n), Offset: uint64(n * size), Size: size, Buf: stream((n + 1) * size)[n*size:]}
}

// readAll reads what is in order, and checks that it is the stream.
func readAll(t *testing.T, r *Receiver) int {
	t.Helper()
	from, b := r.consumed, make([]byte, 1<<16)
	n := r.Read(b, start)
	for i, c := range b[:n] {
		if c != at(from+uint64(i)) {
			t.Fatalf("byte %d is not the stream's", from+uint64(i))
		}
	}
	return n
}

func TestUnitsArePutInOrder(t *testing.T) {
	for name, c := range map[string]struct {
		units []int
		fresh []bool
		read  []int // bytes, after each
	}{
		"in order":       {[]int{0, 1, 2}, []bool{true, true, true}, []int{10, 10, 10}},
		"one is late":    {[]int{1, 2, 0, 3}, []bool{true, true, true, true}, []int{0, 0, 30, 10}},
		"twice in order": {[]int{0, 0, 1}, []bool{true, false, true}, []int{10, 0, 10}},
		"twice early":    {[]int{1, 1, 0, 1}, []bool{true, false, true, false}, []int{0, 0, 20, 0}},
		"backwards":      {[]int{3, 2, 1, 0}, []bool{true, true, true, true}, []int{0, 0, 0, 40}},
	} {
		freed := 0
		r := newReceiver(func(o *ReceiverOptions) { o.Free = func(b []byte) { freed += len(b) } })
		for i, n := range c.units {
			fresh, err := r.Take(unitOf(n, 10), start)
			if got := readAll(t, r); err != nil || fresh != c.fresh[i] || got != c.read[i] {
				t.Errorf("%s: unit %d gives %d bytes, fresh %v, %v", name, n, got, fresh, err)
			}
		}
		if next, _ := r.Ack(); next != r.Offset()/10 || freed != 10*len(c.units) || len(r.held) != 0 {
			t.Errorf("%s: it acknowledges %d of %d bytes, %d bytes were freed, %d units are held", name, next, r.Offset(), freed, len(r.held))
		}
	}
}

func TestEmptyUnitsCount(t *testing.T) {
	r := newReceiver(nil)
	for _, u := range []Unit{{Number: 1, Offset: 0}, {Number: 2, Offset: 0, Size: 5, Buf: stream(5)}, {Number: 0, Offset: 0}} {
		if fresh, err := r.Take(u, start); !fresh || err != nil {
			t.Errorf("unit %d: %v, %v", u.Number, fresh, err)
		}
	}
	if next, _ := r.Ack(); next != 3 || readAll(t, r) != 5 {
		t.Errorf("it acknowledges %d", next)
	}
}

func TestHostileUnitsAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		before []Unit
		u      Unit
		want   string
	}{
		"far ahead":                {nil, Unit{Number: 8}, "while unit 0"},
		"the last number":          {nil, Unit{Number: 1<<64 - 1}, "while unit 0"},
		"beyond the window":        {nil, Unit{Offset: 999, Size: 2}, "more than it may send"},
		"an offset that wraps":     {nil, Unit{Offset: 1<<64 - 1, Size: 2}, "more than it may send"},
		"a size below nothing":     {nil, Unit{Size: -1}, "more than it may send"},
		"a gap in the stream":      {nil, Unit{Offset: 5, Size: 2}, "is at 5, not at 0"},
		"a gap behind what waited": {[]Unit{{Number: 1, Offset: 7, Size: 1}}, Unit{Size: 5}, "is at 7, not at 5"},
	} {
		r := newReceiver(nil)
		for _, u := range c.before {
			if _, err := r.Take(u, start); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := r.Take(c.u, start); !errors.Is(err, ErrViolation) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestEndOfTheStream(t *testing.T) {
	for name, c := range map[string]struct {
		before []Unit
		ends   []End
		after  []Unit
		ended  bool
		want   string // of the error
	}{
		"after all":            {[]Unit{unitOf(0, 10)}, []End{{1, 10}}, nil, true, ""},
		"before the last":      {nil, []End{{2, 20}}, []Unit{unitOf(1, 10), unitOf(0, 10)}, true, ""},
		"said twice":           {nil, []End{{1, 10}, {1, 10}}, []Unit{unitOf(0, 10)}, true, ""},
		"of an empty stream":   {nil, []End{{0, 0}}, nil, true, ""},
		"with a unit missing":  {[]Unit{unitOf(0, 10)}, []End{{2, 20}}, nil, false, ""},
		"a unit again":         {[]Unit{unitOf(0, 10)}, []End{{1, 10}}, []Unit{unitOf(0, 10)}, true, ""},
		"two ends":             {nil, []End{{1, 10}, {2, 10}}, nil, false, "two ends"},
		"in what is in order":  {[]Unit{unitOf(0, 10), unitOf(1, 10)}, []End{{1, 20}}, nil, false, "before what came"},
		"too short":            {[]Unit{unitOf(0, 10), unitOf(1, 10)}, []End{{3, 19}}, nil, false, "before what came"},
		"in what is held":      {[]Unit{unitOf(3, 10)}, []End{{3, 30}}, nil, false, "before what came"},
		"too far ahead":        {nil, []End{{9, 90}}, nil, false, "before what came"},
		"elsewhere":            {[]Unit{unitOf(0, 10)}, []End{{1, 17}}, nil, false, "ends at 10, not at 17"},
		"and a unit behind it": {nil, []End{{1, 10}}, []Unit{unitOf(1, 10)}, false, "behind the end"},
		"and then one more":    {[]Unit{unitOf(0, 10)}, []End{{1, 10}}, []Unit{unitOf(1, 10)}, true, "behind the end"},
	} {
		r := newReceiver(nil)
		var err error
		take := func(units []Unit) {
			for _, u := range units {
				if err == nil {
					_, err = r.Take(u, start)
				}
			}
		}
		take(c.before)
		for i, e := range c.ends {
			if err == nil {
				var again bool
				if again, err = r.TakeEnd(e, start); again != (i > 0) {
					t.Errorf("%s: end %d was known: %v", name, i, again)
				}
			}
		}
		take(c.after)
		if c.want == "" && err != nil || c.want != "" && (!errors.Is(err, ErrViolation) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v", name, err)
		}
		if next, _ := r.Ack(); r.Ended() != c.ended || c.ended && (next != c.ends[0].Unit+1 || !r.AckDue() || !r.Readable()) {
			t.Errorf("%s: ended %v, it acknowledges %d", name, r.Ended(), next)
		}
	}
}

// The other side may send more once a quarter of the window was read, and the window grows where that was quick.
func TestWindowFollowsTheReader(t *testing.T) {
	const quick, slow = 5 * time.Millisecond, 6 * time.Millisecond
	for name, c := range map[string]struct {
		widest int
		after  time.Duration // between the reads, where the round trip takes 10 ms
		memory int64
		limits []uint64 // after each 250 bytes that are read
	}{
		"slow reader":         {4000, slow, 4000, []uint64{1250, 1500, 1750}},
		"quick reader":        {4000, quick, 4000, []uint64{1250, 2500, 2500, 3000, 3000}},
		"no wider than it is": {1000, quick, 4000, []uint64{1250, 1500}},
		"up to the widest":    {1500, quick, 4000, []uint64{1250, 2000, 2000}},
		"no memory":           {4000, quick, 999, []uint64{1250, 1500, 1750}},
	} {
		r := newReceiver(func(o *ReceiverOptions) {
			o.Widest = c.widest
			o.RTT = func() time.Duration { return 10 * time.Millisecond }
			o.Memory = NewBudget(c.memory).Loan()
		})
		now := start
		var limits []uint64
		for i := range c.limits {
			if _, err := r.Take(unitOf(i, 250), now); err != nil {
				t.Fatal(err)
			}
			_, before := r.Ack()
			r.Read(make([]byte, 125), now)
			if _, half := r.Ack(); half != before && i == 0 {
				t.Errorf("%s: an eighth of the window was read, and it may send up to %d", name, half)
			}
			r.Read(make([]byte, 125), now)
			_, limit := r.Ack()
			if due := r.AckDue(); due != (limit > before) || r.AckDue() {
				t.Errorf("%s: it may send up to %d, and then %d: said %v", name, before, limit, due)
			}
			limits = append(limits, limit)
			now = now.Add(c.after)
		}
		if !slices.Equal(limits, c.limits) {
			t.Errorf("%s: it may send up to %v, want %v", name, limits, c.limits)
		}
	}
}

// A reader who takes a whole window at once, each round trip, needs a wider one. One who takes it in two round trips and more does not.
func TestWindowFollowsLargeReads(t *testing.T) {
	const rtt = 10 * time.Millisecond
	for every, want := range map[time.Duration]uint64{rtt: 4000, 2*rtt + 1: 3000} {
		r := newReceiver(func(o *ReceiverOptions) {
			o.Widest = 4000
			o.RTT = func() time.Duration { return rtt }
		})
		now := start
		for i := range 8 {
			if _, err := r.Take(unitOf(i, 250), now); err != nil {
				t.Fatal(err)
			}
			if i%4 == 3 {
				r.Read(make([]byte, 1000), now)
				now = now.Add(every)
			}
		}
		if _, limit := r.Ack(); limit != want {
			t.Errorf("a window every %v: it may send up to %d, want %d", every, limit, want)
		}
	}
}

// Where nobody reads any more, the other side may still send all of its stream.
func TestDiscardedStreamGoesOn(t *testing.T) {
	r := newReceiver(nil)
	r.Take(unitOf(0, 100), start)
	r.Take(unitOf(2, 100), start)
	r.Discard(start)
	for n := 1; n < 100; n++ {
		if _, err := r.Take(unitOf(n, 100), start); err != nil {
			t.Fatal(err)
		}
	}
	if _, limit := r.Ack(); r.Readable() || !r.Discards() || limit < 10_000 || r.Offset() != 10_000 {
		t.Errorf("after %d bytes it may send up to %d, readable %v", r.Offset(), limit, r.Readable())
	}
}

func TestPartsGoToTheReaderWithTheirBuffers(t *testing.T) {
	r := newReceiver(nil)
	u := unitOf(0, 10)
	u.Buf, u.Head = append([]byte("head"), u.Buf...), 4
	r.Take(u, start)
	got, ok := r.Pop()
	if !ok || string(got.Data()) != string(stream(10)) || &got.Buf[0] != &u.Buf[0] {
		t.Errorf("%v, %v", got, ok)
	}
	if _, ok := r.Pop(); ok || r.consumed != 0 {
		t.Errorf("there is more, or %d bytes count as read", r.consumed)
	}
}

// FuzzReceiver takes units of a stream, told apart by where they are, ten bytes of script each. Whatever they claim, what is
// read is the stream from its beginning, and what is held keeps to the bounds.
func FuzzReceiver(f *testing.F) {
	f.Add([]byte{0, 5, 0, 0, 0, 9, 1, 0, 0, 0, 0, 5, 0, 0, 0, 0, 1, 0, 0, 0})
	f.Add([]byte{0, 0, 0, 0, 0, 100, 0, 0, 0, 0, 0, 2, 0, 200, 0, 100, 0, 0, 0, 0, 0, 1, 0, 100, 0, 100, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, script []byte) {
		r := newReceiver(func(o *ReceiverOptions) { o.Widest = 2000 })
		read, now := 0, start
		for ; len(script) >= 10; script = script[10:] {
			now = now.Add(time.Duration(script[9]) * time.Millisecond)
			number, offset := uint64(binary.BigEndian.Uint16(script)), uint64(binary.BigEndian.Uint16(script[2:]))
			size := int(binary.BigEndian.Uint16(script[4:]) % 600)
			if script[8]&1 != 0 {
				number = -number
			}
			var err error
			if script[8]&12 == 12 {
				_, err = r.TakeEnd(End{number, offset}, now)
			} else {
				u := Unit{Number: number, Offset: offset, Size: size}
				for i := range size {
					u.Buf = append(u.Buf, at(offset+uint64(i)))
				}
				_, err = r.Take(u, now)
			}
			if err != nil {
				if !errors.Is(err, ErrViolation) {
					t.Fatal(err)
				}
				return
			}
			if len(r.held) > 8 {
				t.Fatalf("%d units are held", len(r.held))
			}
			if script[8]&16 != 0 {
				read += readAll(t, r)
			}
		}
		if read += readAll(t, r); uint64(read) != r.Offset() || uint64(read) > r.limit {
			t.Errorf("%d bytes were read, and %d are in order, up to %d", read, r.Offset(), r.limit)
		}
	})
}
