package reliable

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// A cover decides how large each block is. Blocks get lost, are delivered in any order and more than once, and a cover
// connection may die with all that is in it.
type cover struct {
	flight *Flight
	flying []part
	seq    uint64
}

type part struct {
	Span
	b   []byte
	seq uint64
	end bool
}

// model is a stream in one direction over covers.
type model struct {
	t      *testing.T
	rng    *rand.Rand
	s      *ByteSender
	r      *ByteReceiver
	covers []*cover
	got    []byte
	now    time.Time
	want   []byte
}

func (m *model) check(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatalf("after %d bytes: %v", len(m.got), err)
	}
}

// pack sends the next part on a cover.
func (m *model) pack(c *cover, room int) {
	p, ok := m.s.Next(room)
	if !ok {
		return
	}
	c.seq++
	one := part{Span: p, seq: c.seq, end: m.s.IsEnd(p)}
	if !one.end {
		one.b = make([]byte, p.Size())
		m.s.Get(p.From, one.b)
	}
	c.flight.Sent(p, c.seq, m.now)
	c.flying = append(c.flying, one)
}

func (m *model) unpack(p part) {
	if p.end {
		_, err := m.r.TakeEnd(p.From, m.now)
		m.check(err)
		return
	}
	_, err := m.r.Take(p.From, p.b, m.now)
	m.check(err)
}

// step does one thing, of those that may happen at any time.
func (m *model) step() {
	m.now = m.now.Add(time.Duration(m.rng.IntN(3000)) * time.Microsecond)
	i := m.rng.IntN(len(m.covers))
	c := m.covers[i]
	switch what := m.rng.IntN(100); {
	case what < 25:
		if m.s.Write(m.want[m.s.Written():min(len(m.want), int(m.s.Written())+m.rng.IntN(3000))]); int(m.s.Written()) == len(m.want) {
			m.s.Close()
		}
	case what < 55:
		m.pack(c, m.rng.IntN([]int{20, 300, 1400}[i%3]))
	case what < 80 && len(c.flying) > 0: // it delivers any of those under way, or loses it
		k := m.rng.IntN(len(c.flying))
		if fate := m.rng.IntN(10); fate > 0 {
			m.unpack(c.flying[k])
			if fate == 9 { // and once more, later
				break
			}
		}
		c.flying = slices.Delete(c.flying, k, k+1)
	case what < 90:
		b := make([]byte, m.rng.IntN(4000))
		m.got = append(m.got, b[:m.r.Read(b, m.now)]...)
	case what < 99:
		next, limit := m.r.Ack()
		m.check(m.s.Acked(next, limit, m.r.Ranges(3)))
		for _, c := range m.covers {
			c.flight.Retire()
			if len(m.r.Ranges(4)) < 4 {
				c.flight.Lose(c.seq, 1<<62)
			}
		}
	case m.rng.IntN(3) == 0: // it dies: of what was under way some arrives all the same, and nobody says so
		for _, p := range c.flying {
			if m.rng.IntN(2) == 0 {
				m.unpack(p)
			}
		}
		c.flight.Fail()
		m.covers[i] = &cover{flight: m.s.NewFlight()}
	}
}

func TestStreamInBlocksOfACover(t *testing.T) {
	for seed := range uint64(30) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			m := &model{t: t, rng: rand.New(rand.NewPCG(seed, 1)), now: start, want: stream(200_000)}
			m.s = NewByteSender(ByteSenderOptions{Buffer: 20_000, Unsent: 5000, Credit: 8000, Parts: 500})
			m.r = NewByteReceiver(ByteReceiverOptions{Window: 8000, Widest: 32_000, Pieces: 500})
			for range 1 + seed%5 {
				m.covers = append(m.covers, &cover{flight: m.s.NewFlight()})
			}
			for steps := 0; !m.s.Proved() || len(m.got) < len(m.want); steps++ {
				if steps > 200_000 {
					waits, end := m.s.Waiting()
					t.Fatalf("stuck: %d bytes of %d were read, %d written, %d and %v wait", len(m.got), len(m.want), m.s.Written(), waits, end)
				}
				m.step()
				if len(m.s.buffer) > 20_000 || len(m.r.buffer) > 32_000 || m.s.free() < 0 || m.s.parts > 500 {
					t.Fatalf("%d and %d bytes are held, of %d parts", len(m.s.buffer), len(m.r.buffer), m.s.parts)
				}
			}
			if !bytes.Equal(m.got, m.want) || !m.r.Ended() || !m.s.Drained() {
				t.Errorf("what was read is not what was written, ended %v", m.r.Ended())
			}
			for _, c := range m.covers {
				c.flight.Fail()
			}
			waits, end := m.s.Waiting()
			if m.s.Rest(); m.s.parts != 0 || waits != 0 || end || len(m.s.there)+len(m.s.lost)+len(m.r.held) != 0 {
				t.Errorf("%d parts are held at the end, %d bytes and %v wait", m.s.parts, waits, end)
			}
		})
	}
}

// fills asks for blocks of so many bytes, and gives what is in them as [first, last).
func fills(s *ByteSender, f *Flight, rooms ...int) (got [][2]uint64) {
	for _, room := range rooms {
		if p, ok := s.Next(room); ok {
			f.Sent(p, uint64(1+len(f.sent)), start)
			got = append(got, [2]uint64{p.From, p.To})
		}
	}
	return got
}

// A sender first repeats what a lost carrier had, in blocks of any size.
func TestLostBytesGoFirst(t *testing.T) {
	type span = [2]uint64
	for name, c := range map[string]struct {
		after func(s *ByteSender, lost *Flight) // three parts of 100 bytes were sent on lost
		rooms []int
		want  []span
	}{
		"nothing is lost":       {func(*ByteSender, *Flight) {}, []int{50, 500}, []span{{300, 350}, {350, 500}}},
		"in smaller blocks":     {func(_ *ByteSender, l *Flight) { l.Fail() }, []int{60, 60, 200, 500, 10}, []span{{0, 60}, {60, 120}, {120, 300}, {300, 500}}},
		"what is not there":     {func(s *ByteSender, l *Flight) { s.Acked(130, 0, nil); l.Fail() }, []int{50, 500, 500}, []span{{130, 180}, {180, 300}, {300, 500}}},
		"between ranges":        {func(s *ByteSender, l *Flight) { s.Acked(0, 0, []Span{{50, 80}, {120, 250}}); l.Fail() }, []int{500, 500, 500, 500}, []span{{0, 50}, {80, 120}, {250, 300}, {300, 500}}},
		"what came afterwards":  {func(s *ByteSender, l *Flight) { l.Fail(); s.Acked(0, 0, []Span{{50, 290}}) }, []int{500, 500, 500}, []span{{0, 50}, {290, 300}, {300, 500}}},
		"what the order proves": {func(_ *ByteSender, l *Flight) { l.Arrived(2); l.Fail() }, []int{500, 9}, []span{{200, 300}, {300, 309}}},
		"what was acknowledged": {func(s *ByteSender, l *Flight) { s.Acked(200, 0, nil); l.Retire(); l.Fail() }, []int{500, 9}, []span{{200, 300}, {300, 309}}},
		"no room":               {func(_ *ByteSender, l *Flight) { l.Fail() }, []int{0, -1}, nil},
		"the end by itself":     {func(s *ByteSender, l *Flight) { s.Close() }, []int{500, 0, 500}, []span{{300, 500}, {500, 501}}},
		"the end again":         {func(s *ByteSender, l *Flight) { s.Close(); fills(s, l, 500, 500); l.Fail() }, []int{600, 0, 500}, []span{{0, 500}, {500, 501}}},
	} {
		s := NewByteSender(ByteSenderOptions{Buffer: 1000, Unsent: 1000, Credit: 1 << 20, Parts: 100})
		s.Write(stream(500))
		lost, other := s.NewFlight(), s.NewFlight()
		fills(s, lost, 100, 100, 100)
		c.after(s, lost)
		if got := fills(s, other, c.rooms...); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		if s.parts != lost.Len()+other.Len() {
			t.Errorf("%s: %d parts, and %d are counted", name, lost.Len()+other.Len(), s.parts)
		}
	}
}

// Of datagrams, what is three parts behind one that arrived is lost, unless the acknowledgement does not reach that far.
func TestLostDatagrams(t *testing.T) {
	for name, c := range map[string]struct {
		named, before uint64
		want          int
	}{"all but the last": {6, 1 << 62, 30}, "up to a block": {4, 1 << 62, 10}, "the first": {3, 1 << 62, 0}, "not behind the ranges": {6, 25, 20}, "to come": {90, 1 << 62, 30}} {
		s := NewByteSender(ByteSenderOptions{Buffer: 1000, Unsent: 1000, Credit: 1 << 20, Parts: 100})
		s.Write(stream(60))
		f := s.NewFlight()
		fills(s, f, 10, 10, 10, 10, 10, 10)
		if got := f.Lose(c.named, c.before); got != c.want || f.Len() != 6-got/10 || s.parts != f.Len() {
			t.Errorf("%s: %d bytes of %d are lost, %d parts remain", name, got, c.want, f.Len())
		}
	}
}

func TestSenderKeepsToItsLimits(t *testing.T) {
	s := NewByteSender(ByteSenderOptions{Buffer: 100, Unsent: 40, Credit: 60, Parts: 3})
	f := s.NewFlight()
	if n := s.Write(stream(500)); n != 40 {
		t.Errorf("%d bytes were taken, and none of them are sent", n)
	}
	fills(s, f, 40)
	if n := s.Write(stream(500)); n != 40 {
		t.Errorf("%d bytes were taken", n)
	}
	if got := fills(s, f, 40, 40); len(got) != 1 || !s.Blocked() {
		t.Errorf("beyond the limit: %v", got)
	}
	if n := s.Write(stream(500)); n != 20 {
		t.Errorf("%d bytes were taken, with room for 20", n)
	}
	if err := s.Acked(0, 100, nil); err != nil || s.Blocked() {
		t.Error(err)
	}
	if got := fills(s, f, 1, 1); len(got) != 1 {
		t.Errorf("too many parts: %v", got)
	}
	for _, hostile := range []struct {
		next   uint64
		ranges []Span
	}{{62, nil}, {0, []Span{{50, 62}}}, {0, []Span{{7, 7}}}, {0, []Span{{9, 7}}}, {1 << 63, nil}} {
		if err := s.Acked(hostile.next, 0, hostile.ranges); !errors.Is(err, ErrViolation) {
			t.Errorf("%v: %v", hostile, err)
		}
	}
}

// newBytes is a receiver with a window of 1000 bytes.
func newBytes() *ByteReceiver {
	return NewByteReceiver(ByteReceiverOptions{Window: 1000, Widest: 1000, Pieces: 20})
}

// takeBytes takes some bytes of the stream.
func takeBytes(r *ByteReceiver, from, to int) (bool, error) {
	return r.Take(uint64(from), stream(to)[from:], start)
}

// readBytes reads what is in order, and checks that it is the stream.
func readBytes(t *testing.T, r *ByteReceiver) int {
	t.Helper()
	from, b := r.credit.consumed, make([]byte, 1<<16)
	n := r.Read(b, start)
	for i, c := range b[:n] {
		if c != at(from+uint64(i)) {
			t.Fatalf("byte %d is not the stream's", from+uint64(i))
		}
	}
	return n
}

// Parts overlap in any way with what came before.
func TestBytesArePutInOrder(t *testing.T) {
	type span = [2]int
	for name, c := range map[string]struct {
		spans []span
		fresh []bool
		held  []int // pieces, after each
		read  []int // bytes, after each
	}{
		"in order":              {[]span{{0, 10}, {10, 15}}, []bool{true, true}, []int{0, 0}, []int{10, 5}},
		"again, with more":      {[]span{{0, 10}, {0, 15}, {5, 20}, {3, 9}}, []bool{true, true, true, false}, []int{0, 0, 0, 0}, []int{10, 5, 5, 0}},
		"a gap, filled":         {[]span{{10, 20}, {30, 40}, {0, 10}, {20, 30}}, []bool{true, true, true, true}, []int{1, 2, 1, 0}, []int{0, 0, 20, 20}},
		"over what is held":     {[]span{{10, 20}, {30, 40}, {5, 45}, {0, 5}}, []bool{true, true, true, true}, []int{1, 2, 1, 0}, []int{0, 0, 0, 45}},
		"within what is held":   {[]span{{10, 40}, {10, 40}, {15, 25}, {10, 20}, {20, 40}, {0, 11}}, []bool{true, false, false, false, false, true}, []int{1, 1, 1, 1, 1, 0}, []int{0, 0, 0, 0, 0, 40}},
		"across the left edge":  {[]span{{10, 20}, {5, 15}, {0, 5}}, []bool{true, true, true}, []int{1, 1, 0}, []int{0, 0, 20}},
		"across the right edge": {[]span{{10, 20}, {15, 25}, {0, 10}}, []bool{true, true, true}, []int{1, 1, 0}, []int{0, 0, 25}},
		"late over all of it":   {[]span{{10, 20}, {30, 40}, {0, 50}}, []bool{true, true, true}, []int{1, 2, 0}, []int{0, 0, 50}},
		"bytes one by one":      {[]span{{9, 10}, {8, 9}, {7, 8}, {1, 2}, {2, 3}, {0, 1}}, []bool{true, true, true, true, true, true}, []int{1, 1, 1, 2, 2, 1}, []int{0, 0, 0, 0, 0, 3}},
		"nothing":               {[]span{{0, 0}, {5, 5}}, []bool{false, false}, []int{0, 0}, []int{0, 0}},
		"all of the window":     {[]span{{1, 1000}, {0, 1}, {1000, 1700}}, []bool{true, true, true}, []int{1, 0, 0}, []int{0, 1000, 700}},
	} {
		r := newBytes()
		for i, s := range c.spans {
			fresh, err := takeBytes(r, s[0], s[1])
			if got := readBytes(t, r); err != nil || fresh != c.fresh[i] || got != c.read[i] || len(r.held) != c.held[i] {
				t.Errorf("%s: %v gives %d bytes, fresh %v, %d pieces held, %v", name, s, got, fresh, len(r.held), err)
			}
		}
	}
}

func TestHostileBytesAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		take func(r *ByteReceiver) error
		want string
	}{
		"beyond the window":       {func(r *ByteReceiver) error { _, err := takeBytes(r, 990, 1001); return err }, "more than it may send"},
		"bytes that wrap":         {func(r *ByteReceiver) error { _, err := r.Take(1<<64-1, make([]byte, 2), start); return err }, "more than it may send"},
		"far away":                {func(r *ByteReceiver) error { _, err := r.Take(1<<63, make([]byte, 2), start); return err }, "more than it may send"},
		"behind the end":          {func(r *ByteReceiver) error { r.TakeEnd(10, start); _, err := takeBytes(r, 5, 11); return err }, "behind the end"},
		"two ends":                {func(r *ByteReceiver) error { r.TakeEnd(10, start); _, err := r.TakeEnd(11, start); return err }, "two ends"},
		"an end in what is there": {func(r *ByteReceiver) error { takeBytes(r, 0, 10); _, err := r.TakeEnd(9, start); return err }, "before what came"},
		"an end in what is held":  {func(r *ByteReceiver) error { takeBytes(r, 5, 10); _, err := r.TakeEnd(9, start); return err }, "before what came"},
		"an end beyond it":        {func(r *ByteReceiver) error { _, err := r.TakeEnd(1001, start); return err }, "beyond what it may send"},
		"too many pieces": {func(r *ByteReceiver) (err error) {
			for i := 0; err == nil && i < 400; i++ {
				_, err = takeBytes(r, 2*i+1, 2*i+2)
			}
			return err
		}, "21 pieces out of order"},
	} {
		if err := c.take(newBytes()); !errors.Is(err, ErrViolation) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The stream may go on where nobody reads it, and idle streams hold no memory.
func TestBytesThatNobodyReads(t *testing.T) {
	r := newBytes()
	takeBytes(r, 0, 300)
	takeBytes(r, 400, 500)
	if r.Rest(); len(r.buffer) == 0 {
		t.Error("bytes that wait were dropped")
	}
	r.Discard(start)
	for n := 3; n < 100; n++ {
		if _, err := takeBytes(r, 100*n, 100*n+100); err != nil {
			t.Fatal(err)
		}
	}
	r.TakeEnd(10_000, start)
	if next, limit := r.Ack(); r.Buffered() != 0 || limit < 10_000 || next != 10_001 || !r.Ended() || r.buffer != nil {
		t.Errorf("%d bytes came, up to %d are allowed, %d can be read", next, limit, r.Buffered())
	}
}

// FuzzSpans compares spans with a set of numbers.
func FuzzSpans(f *testing.F) {
	f.Add([]byte{1, 5, 9, 0, 3, 4, 9, 20, 1, 6, 7, 1, 10, 11})
	f.Fuzz(func(t *testing.T, script []byte) {
		var s spans
		var want [256]bool
		for ; len(script) >= 3; script = script[3:] {
			n := Span{uint64(script[1]), uint64(script[2])}
			all, missing := true, map[uint64]bool{}
			for i := n.From; i < n.To; i++ {
				all = all && want[i]
				missing[i] = !want[i]
			}
			if s.holds(n) != all {
				t.Fatalf("%v holds %v: %v", s, n, !all)
			}
			s.missing(n, func(gap Span) {
				for i := gap.From; i < gap.To; i++ {
					if !missing[i] {
						t.Fatalf("%v has %d", s, i)
					}
					delete(missing, i)
				}
			})
			for i, yes := range missing {
				if yes {
					t.Fatalf("%v lacks %d", s, i)
				}
			}
			for i := n.From; i < n.To; i++ {
				want[i] = script[0]&1 == 0
			}
			if script[0]&1 == 0 {
				s.add(n)
			} else {
				s.remove(n)
			}
			for i := 1; i < len(s); i++ {
				if s[i].From <= s[i-1].To || s[i].From >= s[i].To {
					t.Fatalf("%v are not in order", s)
				}
			}
		}
		for i, yes := range want {
			if s.holds(Span{uint64(i), uint64(i) + 1}) != yes {
				t.Fatalf("%v, and %d: %v", s, i, yes)
			}
		}
	})
}
