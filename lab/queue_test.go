package lab

import (
	"math"
	"slices"
	"testing"
	"time"
)

const ms = time.Millisecond

// feed offers n packets of size bytes, one each interval, and pops what is due at each step. It returns the times at
// which packets were due, by serial order of delivery, and their numbers.
func feed(q *queue, n, size int, interval time.Duration) (due []time.Duration, order []int) {
	take := func(now time.Duration) {
		for {
			p, at, ok := q.pop(now)
			if !ok {
				return
			}
			due = append(due, at)
			order = append(order, int(p[0])<<16|int(p[1])<<8|int(p[2]))
		}
	}
	var now time.Duration
	for i := range n {
		now = time.Duration(i) * interval
		take(now)
		p := make([]byte, size)
		p[0], p[1], p[2] = byte(i>>16), byte(i>>8), byte(i)
		q.push(now, p)
	}
	take(now + time.Hour)
	return due, order
}

func TestQueueHoldsTheRate(t *testing.T) {
	cases := []struct {
		name     string
		shape    Shape
		interval time.Duration
		want     time.Duration // when the last of 1000 packets of 1250 bytes is due
	}{
		{"a burst at 10 Mbit/s takes 1 ms a packet", Shape{Rate: 10_000_000, QueuePackets: 5000}, 0, 1000 * ms},
		{"delay comes on top", Shape{Rate: 10_000_000, Delay: 30 * ms, QueuePackets: 5000}, 0, 1030 * ms},
		{"slower than the rate", Shape{Rate: 10_000_000}, 2 * ms, 999*2*ms + ms},
		{"a bucket of 10 packets saves 10 ms", Shape{Rate: 10_000_000, Burst: 12_500, QueuePackets: 5000}, 0, 990 * ms},
		{"no rate", Shape{Delay: 5 * ms}, ms, 1004 * ms},
	}
	for _, c := range cases {
		due, order := feed(newQueue(c.shape, 1, 1), 1000, 1250, c.interval)
		if len(due) != 1000 {
			t.Fatalf("%s: %d packets of 1000", c.name, len(due))
		}
		if due[999] != c.want {
			t.Errorf("%s: the last is due at %v, want %v", c.name, due[999], c.want)
		}
		for i := range order {
			if order[i] != i {
				t.Fatalf("%s: packet %d is delivered as number %d", c.name, order[i], i)
			}
		}
	}
}

func TestQueueIsBounded(t *testing.T) {
	cases := []struct {
		name  string
		shape Shape
		keep  int // of 20,000 packets of 1000 bytes at once
	}{
		{"packets", Shape{Rate: 8_000_000, QueuePackets: 50}, 50},
		{"bytes", Shape{Rate: 8_000_000, QueueBytes: 70_500}, 70},
		{"a queue smaller than one packet holds one", Shape{Rate: 8_000_000, QueueBytes: 10}, 1},
		{"unstated: 100 ms", Shape{Rate: 8_000_000}, 100},
		{"unstated and slow: 20 full packets", Shape{Rate: 8_000}, 30},
		{"no rate: the emulator's own bound", Shape{Delay: time.Second}, maxInFlight},
	}
	for _, c := range cases {
		q := newQueue(c.shape, 1, 1)
		due, _ := feed(q, 20_000, 1000, 0)
		if len(due) != c.keep || q.count.Overflowed != uint64(20_000-c.keep) {
			t.Errorf("%s: kept %d and dropped %d, want %d kept", c.name, len(due), q.count.Overflowed, c.keep)
		}
	}
}

func TestQueueDrainsAtTheRate(t *testing.T) {
	q := newQueue(Shape{Rate: 8_000_000, QueuePackets: 10}, 1, 1) // 1000 bytes a millisecond
	accepted := 0
	for now := time.Duration(0); now < time.Second; now += ms / 4 { // four times the rate
		if q.push(now, make([]byte, 1000)) {
			accepted++
		}
	}
	if accepted < 1000 || accepted > 1011 {
		t.Errorf("%d packets accepted in a second, want the rate's 1000 and at most the queue's 10 more", accepted)
	}
}

// within says whether a count of n draws with probability p is within five standard deviations.
func within(count uint64, n int, p float64) bool {
	return math.Abs(float64(count)-float64(n)*p) <= 5*math.Sqrt(float64(n)*p*(1-p))
}

func TestQueueLosesAsOften(t *testing.T) {
	const n = 50_000
	for _, p := range []float64{0, 0.001, 0.1, 0.5, 1} {
		for seed := range uint64(3) {
			q := newQueue(Shape{Delay: ms, Loss: p}, seed, 7)
			due, _ := feed(q, n, 100, ms/10)
			if !within(q.count.Lost, n, p) {
				t.Errorf("seed %d: lost %d of %d at %v", seed, q.count.Lost, n, p)
			}
			if uint64(len(due))+q.count.Lost != n {
				t.Errorf("seed %d: %d delivered and %d lost of %d", seed, len(due), q.count.Lost, n)
			}
		}
	}
}

func TestQueueRepeatsItsSeed(t *testing.T) {
	shape := Shape{Delay: 10 * ms, Jitter: 5 * ms, Loss: 0.2, Reorder: 0.1}
	a, _ := feed(newQueue(shape, 42, 3), 1000, 100, ms)
	b, _ := feed(newQueue(shape, 42, 3), 1000, 100, ms)
	other, _ := feed(newQueue(shape, 43, 3), 1000, 100, ms)
	same := func(x, y []time.Duration) bool {
		if len(x) != len(y) {
			return false
		}
		for i := range x {
			if x[i] != y[i] {
				return false
			}
		}
		return true
	}
	if !same(a, b) || same(a, other) {
		t.Errorf("same seed alike: %v; other seed alike: %v", same(a, b), same(a, other))
	}
}

func TestQueueJitterKeepsOrderAndBounds(t *testing.T) {
	const n = 5000
	q := newQueue(Shape{Delay: 20 * ms, Jitter: 5 * ms}, 1, 1)
	due, order := feed(q, n, 100, 20*ms) // far apart, so that keeping the order moves nothing
	spread := map[bool]int{}
	for i := range due {
		late := due[i] - time.Duration(i)*20*ms
		if order[i] != i || late < 15*ms || late > 25*ms {
			t.Fatalf("packet %d is number %d after %v", i, order[i], late)
		}
		spread[late > 20*ms]++
	}
	if !within(uint64(spread[true]), n, 0.5) {
		t.Errorf("%d of %d above the middle", spread[true], n)
	}
	due, order = feed(newQueue(Shape{Delay: 20 * ms, Jitter: 20 * ms}, 1, 1), n, 100, ms)
	for i := range order {
		if order[i] != i || (i > 0 && due[i] < due[i-1]) {
			t.Fatalf("jitter reordered packet %d", i)
		}
	}
}

func TestQueueReorders(t *testing.T) {
	const n, p = 20_000, 0.05
	q := newQueue(Shape{Delay: 10 * ms, Reorder: p}, 1, 1)
	_, order := feed(q, n, 100, ms)
	early := uint64(0)
	highest := -1
	for _, number := range order {
		if number > highest {
			highest = number
		}
	}
	for i, number := range order {
		if number > i { // delivered before packets that were sent earlier
			early++
		}
	}
	if !within(q.count.Reordered, n, p) || highest != n-1 {
		t.Errorf("reordered %d of %d at %v", q.count.Reordered, n, p)
	}
	if early < q.count.Reordered*9/10 {
		t.Errorf("%d overtook others, of %d that skipped the delay", early, q.count.Reordered)
	}
}

func TestQueueDuplicates(t *testing.T) {
	const n, p = 20_000, 0.05
	q := newQueue(Shape{Delay: 10 * ms, Duplicate: p}, 1, 1)
	_, order := feed(q, n, 100, ms)
	seen := map[int]int{}
	for _, number := range order {
		seen[number]++
	}
	twice := 0
	for _, times := range seen {
		if times == 2 {
			twice++
		}
	}
	if !within(q.count.Duplicated, n, p) || twice != int(q.count.Duplicated) || len(seen) != n || len(order) != n+twice {
		t.Errorf("%d of %d arrived twice, %d in all, and %d were counted", twice, len(seen), len(order), q.count.Duplicated)
	}
}

// What befalls one packet spares all others, until the shape is set again.
func TestQueueTroublesOnePacket(t *testing.T) {
	q := newQueue(Shape{}, 1, 1)
	for _, c := range []struct {
		shape Shape
		want  []int
	}{{Shape{Loss: 1, Only: 1}, []int{1, 2, 3, 4}}, {Shape{Duplicate: 1, Only: 2}, []int{0, 1, 1, 2, 3, 4}}, {Shape{Reorder: 1, Delay: 10 * ms, Only: 3}, []int{2, 0, 1, 3, 4}}} {
		q.count = Counters{}
		q.reshape(c.shape)
		if _, order := feed(q, 5, 100, ms); !slices.Equal(order, c.want) || q.count.Lost+q.count.Duplicated+q.count.Reordered != 1 {
			t.Errorf("%+v: %v arrive, %+v", c.shape, order, q.count)
		}
	}
}

func TestQueueCutsAndReshapes(t *testing.T) {
	q := newQueue(Shape{Delay: 10 * ms}, 1, 1)
	q.push(0, []byte{0})
	q.cut = true
	if q.push(ms, []byte{1}) || q.count.Lost != 1 {
		t.Error("a cut link took a packet")
	}
	q.cut, q.shape.Delay = false, 2*ms
	q.push(2*ms, []byte{2})
	if at, ok := q.next(); !ok || at != 10*ms {
		t.Errorf("next at %v, want the packet that was under way at 10ms", at)
	}
	first, _, _ := q.pop(time.Hour)
	second, at, _ := q.pop(time.Hour)
	if first[0] != 0 || second[0] != 2 || at != 10*ms {
		t.Errorf("delivered %d, then %d at %v: a shorter delay must not overtake", first[0], second[0], at)
	}
}

func TestShapeValidate(t *testing.T) {
	good := []Shape{{}, {Delay: time.Second, Jitter: time.Second, Rate: 1, Loss: 1, Reorder: 1}}
	bad := []Shape{{Delay: -1}, {Delay: ms, Jitter: 2 * ms}, {Rate: -1}, {Loss: 1.1}, {Loss: math.NaN()}, {Reorder: -0.1},
		{QueueBytes: -1}, {Burst: -1}, {Only: -1}, {Delay: time.Hour}}
	for _, s := range good {
		if err := s.Validate(); err != nil {
			t.Errorf("%+v: %v", s, err)
		}
	}
	for _, s := range bad {
		if s.Validate() == nil {
			t.Errorf("%+v is taken for good", s)
		}
	}
}

func TestLateness(t *testing.T) {
	var l lateness
	for i := 1; i <= 1000; i++ {
		l.record(time.Duration(i) * time.Microsecond)
	}
	l.record(-time.Second) // early counts as on time
	got := l.summary()
	near := func(got, want float64) bool { return math.Abs(got-want) <= want/16 }
	if got.Packets != 1001 || !near(got.Mean, 0.5) || !near(got.P50, 0.5) || !near(got.P99, 0.99) || got.Max != 1 {
		t.Errorf("%+v", got)
	}
	for _, v := range []uint64{0, 1, 15, 16, 31, 32, 33, 1000, 123456789, math.MaxInt64} {
		if b := lateBucket(v); lateBound(b) < v || (b > 0 && lateBound(b-1) >= v) {
			t.Errorf("%d is in bucket %d, up to %d", v, b, lateBound(b))
		}
	}
	if (&lateness{}).summary() != (Lateness{}) {
		t.Error("nothing delivered is not late")
	}
}
