package reliable

import (
	"bytes"
	"errors"
	"slices"
	"testing"
)

// stream is n bytes, each of which tells where it is.
func stream(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = at(uint64(i))
	}
	return b
}

func at(offset uint64) byte { return byte(offset*167 + offset>>8) }

// newSender has written n bytes.
func newSender(t *testing.T, n int, change func(*SenderOptions)) *Sender {
	t.Helper()
	o := SenderOptions{Buffer: 1000, Credit: 1 << 20, Hold: 1 << 20, Ahead: 100}
	if change != nil {
		change(&o)
	}
	s := NewSender(o)
	if got := s.Write(stream(n)); got != n {
		t.Fatalf("%d of %d bytes were taken", got, n)
	}
	return s
}

// push cuts units of so many bytes, and queues them.
func push(s *Sender, o *Outbox, sizes ...int) {
	for _, size := range sizes {
		u := Unit{Number: s.Next(), Offset: s.Offset(), Size: size, Buf: make([]byte, size)}
		s.Get(s.Offset(), u.Buf)
		s.Cut(size, s.Next()+1)
		o.Push(u)
	}
}

// takeAll takes all that waits, and gives the numbers.
func takeAll(o *Outbox) (numbers []uint64) {
	for {
		u, _, ok := o.Take()
		if !ok {
			o.Sent()
			return numbers
		}
		numbers = append(numbers, u.Number)
	}
}

func TestReadyIsWhatTheBoundsAllow(t *testing.T) {
	for name, c := range map[string]struct {
		written int
		change  func(*SenderOptions)
		after   func(*Sender, *Outbox)
		want    int
	}{
		"all that is written":       {500, nil, nil, 500},
		"no more than the credit":   {500, func(o *SenderOptions) { o.Credit = 70 }, nil, 70},
		"credit beyond what is":     {500, func(o *SenderOptions) { o.Credit = 70 }, func(s *Sender, _ *Outbox) { s.Allow(1<<64 - 1) }, 500},
		"credit is never withdrawn": {500, nil, func(s *Sender, _ *Outbox) { s.Allow(3) }, 500},
		"what was cut is gone":      {500, nil, func(s *Sender, o *Outbox) { push(s, o, 100) }, 400},
		"less than may be held":     {500, func(o *SenderOptions) { o.Hold = 101 }, func(s *Sender, o *Outbox) { push(s, o, 100) }, 400},
		"as much as may be held":    {500, func(o *SenderOptions) { o.Hold = 100 }, func(s *Sender, o *Outbox) { push(s, o, 100) }, 0},
		"held, and let go":          {500, func(o *SenderOptions) { o.Hold = 100 }, func(s *Sender, o *Outbox) { push(s, o, 100); confirm(s, o, 1) }, 400},
		"units ahead":               {500, func(o *SenderOptions) { o.Ahead = 3 }, func(s *Sender, o *Outbox) { push(s, o, 1, 1, 1) }, 0},
		"units ahead of the other":  {500, func(o *SenderOptions) { o.Ahead = 3 }, func(s *Sender, o *Outbox) { push(s, o, 1, 1, 1); confirm(s, o, 1) }, 497},
	} {
		s := newSender(t, c.written, c.change)
		if c.after != nil {
			c.after(s, s.NewOutbox())
		}
		if got := s.Ready(1); got != c.want {
			t.Errorf("%s: %d bytes, want %d", name, got, c.want)
		}
	}
}

// confirm takes everything from the outbox, and an acknowledgement of all numbers below next.
func confirm(s *Sender, o *Outbox, next uint64) {
	takeAll(o)
	if _, err := s.Acked(next, 0); err != nil {
		panic(err)
	}
	o.Retire(false)
}

func TestBufferIsARing(t *testing.T) {
	s := NewSender(SenderOptions{Buffer: 100, Credit: 1 << 20, Hold: 1 << 20, Ahead: 1 << 20})
	o, want, got := s.NewOutbox(), stream(1000), []byte(nil)
	for len(got) < len(want) {
		n := s.Write(want[s.Written():min(len(want), int(s.Written())+37)])
		if room := s.Space(); s.Free() > 0 && len(room) == 0 || len(room) > s.Free() {
			t.Fatalf("%d bytes of room, of which %d are free", len(room), s.Free())
		} else if left := want[s.Written():]; len(left) > 0 {
			n += copy(room, left)
			s.Commit(copy(room, left))
		}
		if n == 0 && s.Free() > 0 && s.Written() < 1000 {
			t.Fatalf("stuck after %d bytes", len(got))
		}
		push(s, o, min(53, s.Ready(1)))
		u, _, _ := o.Take()
		got = append(got, u.Data()...)
	}
	if !bytes.Equal(got, want) {
		t.Error("the bytes that were cut are not those that were written")
	}
}

func TestEndComesBehindTheLastUnit(t *testing.T) {
	s := newSender(t, 100, nil)
	o := s.NewOutbox()
	if s.Finish() || s.Proved() || s.Drained() {
		t.Error("a stream that is written still has an end")
	}
	s.Close()
	if s.Finish() || !s.Closed() {
		t.Error("the end comes before the last bytes")
	}
	push(s, o, 60, 40)
	if !s.Finish() || s.Finish() || *s.End() != (End{Unit: 2, Offset: 100}) {
		t.Errorf("the end is %+v", s.End())
	}
	confirm(s, o, 2)
	if s.Proved() || !s.Drained() {
		t.Error("the other side has all but the end")
	}
	confirm(s, o, 3)
	if !s.Proved() {
		t.Error("the other side has all of it")
	}
	if _, err := s.Acked(4, 0); !errors.Is(err, ErrViolation) {
		t.Errorf("what was never sent is confirmed: %v", err)
	}
}

func TestAcknowledgementsOfNothing(t *testing.T) {
	s := newSender(t, 100, nil)
	push(s, s.NewOutbox(), 60)
	for _, c := range []struct {
		next     uint64
		more, ok bool
	}{{0, false, true}, {1, true, true}, {1, false, true}, {0, false, true}, {1, false, true}, {2, false, false}, {1 << 63, false, false}} {
		if more, err := s.Acked(c.next, 0); more != c.more || (err == nil) != c.ok {
			t.Errorf("%d: %v, %v", c.next, more, err)
		}
	}
}

// A carrier that was interrupted goes on where it was: first what was sent and lacks, then what waits, in order.
func TestResumeSendsAgainInOrder(t *testing.T) {
	for name, c := range map[string]struct {
		theirs uint64 // frames before it arrived
		acked  uint64
		want   []uint64
	}{
		"nothing arrived":           {1, 0, []uint64{0, 1, 2, 3, 4}},
		"two frames arrived":        {3, 0, []uint64{2, 3, 4}},
		"all arrived":               {4, 0, []uint64{3, 4}},
		"acknowledged by another":   {1, 2, []uint64{2, 3, 4}},
		"acknowledged up to a hole": {3, 1, []uint64{2, 3, 4}},
	} {
		s := newSender(t, 500, nil)
		o := s.NewOutbox()
		push(s, o, 10, 10, 10, 10, 10)
		for range 3 {
			o.Take()
		}
		if _, err := s.Acked(c.acked, 0); err != nil {
			t.Fatal(err)
		}
		again, err := o.Resume(c.theirs)
		if err != nil || again != len(c.want)-2 || o.Queued() != 10*len(c.want) || s.held != o.Queued() || o.Busy() != 0 {
			t.Errorf("%s: %d again, %v; %d bytes wait, and %d are held", name, again, err, o.Queued(), s.held)
		}
		if got := takeAll(o); !slices.Equal(got, c.want) {
			t.Errorf("%s: it sends %v, want %v", name, got, c.want)
		}
		if _, err := o.Resume(o.next + 1); !errors.Is(err, ErrViolation) {
			t.Errorf("%s: frames that were never sent arrived: %v", name, err)
		}
	}
}

func TestNumbersOfACarrierAreKept(t *testing.T) {
	s := newSender(t, 500, nil)
	o := s.NewOutbox()
	push(s, o, 10, 10)
	first, fresh, _ := o.Take()
	if first.Seq != 1 || !fresh {
		t.Errorf("the first is %d, fresh %v", first.Seq, fresh)
	}
	o.Resume(1)
	if u, fresh, _ := o.Take(); u.Seq != 1 || fresh {
		t.Errorf("sent again it is %d, fresh %v", u.Seq, fresh)
	}
	if u, fresh, _ := o.Take(); u.Seq != 2 || !fresh {
		t.Errorf("the second is %d, fresh %v", u.Seq, fresh)
	}
}

// What the other side has is let go, but for what is being sent, whose buffer is in use.
func TestRetireLetsGo(t *testing.T) {
	freed := 0
	s := newSender(t, 500, func(o *SenderOptions) { o.Free = func(b []byte) { freed += len(b) } })
	o := s.NewOutbox()
	push(s, o, 10, 10, 10, 10)
	takeN := func(n int) {
		for range n {
			o.Take()
		}
	}
	takeN(1)
	o.Sent()
	takeN(1)
	s.Acked(4, 0)
	want := func(when string, arrived, skipped, gotArrived, gotSkipped, total int) {
		t.Helper()
		if arrived != gotArrived || skipped != gotSkipped || freed != total || s.held != 40-total {
			t.Errorf("%s: %d arrived, %d skipped, %d freed, %d held", when, gotArrived, gotSkipped, freed, s.held)
		}
	}
	a, k := o.Retire(false)
	want("one is being sent, two wait", 1, 0, a, k, 10)
	o.Sent()
	a, k = o.Retire(false)
	want("it was sent", 1, 0, a, k, 20)
	a, k = o.Retire(true)
	want("what waits is needless", 0, 2, a, k, 40)
	if o.Queued()+o.Waiting()+o.Unproved() != 0 {
		t.Errorf("%d bytes of %d units wait, %d were sent", o.Queued(), o.Waiting(), o.Unproved())
	}
}

func TestOthersTakeOverFromALostCarrier(t *testing.T) {
	s := newSender(t, 500, nil)
	lost, other := s.NewOutbox(), s.NewOutbox()
	push(s, lost, 10, 10, 10, 10)
	lost.Take()
	lost.Take()
	s.Acked(1, 0)
	if offset, ok := lost.First(); !ok || offset != 10 {
		t.Errorf("the first byte that is missing is %d, %v", offset, ok)
	}
	for _, u := range lost.Drain() {
		if u.Seq != 0 {
			t.Errorf("unit %d is %d of a carrier that is lost", u.Number, u.Seq)
		}
		other.Adopt(u)
	}
	if got := takeAll(other); !slices.Equal(got, []uint64{1, 2, 3}) || s.held != 30 {
		t.Errorf("it sends %v, and %d bytes are held", got, s.held)
	}
	if lost.Queued()+lost.Waiting()+lost.Unproved() != 0 {
		t.Error("the lost carrier keeps something")
	}
	if _, ok := lost.First(); ok {
		t.Error("nothing is missing there")
	}
}
