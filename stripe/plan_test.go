package stripe

import (
	"bytes"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"heddle/internal/reliable"
	"heddle/internal/segment"
	"heddle/stripe/share"
)

// still is a session over n paths that are up, in which nothing runs.
func still(t *testing.T, s settings) *Conn {
	t.Helper()
	s.segment, s.window, s.minMembers, s.log = DefaultSegment, DefaultWindow, s.members, slog.New(slog.DiscardHandler)
	c := &Conn{settings: s, started: true, stop: func() {}, over: make(chan struct{}), gone: make(chan struct{})}
	for i := range s.members {
		m := newMember(c, i, string(rune('a'+i)))
		raw, far := net.Pipe()
		t.Cleanup(func() { raw.Close(); far.Close() })
		m.link = &link{raw: raw}
		c.members = append(c.members, m)
	}
	if err := c.prepareSender(); err != nil {
		t.Fatal(err)
	}
	c.prepareReceiver()
	return c
}

// The end of a transfer waits until each path can take a part of it, so that it is on none of them whole.
func TestMessageWaitsForEveryPath(t *testing.T) {
	for name, c := range map[string]struct {
		queued [3]int // bytes that wait for each path already
		goes   bool
	}{
		"nothing waits":       {[3]int{}, true},
		"a segment each":      {[3]int{1, DefaultSegment - 32, 0}, true},
		"one path is behind":  {[3]int{0, DefaultSegment, 0}, false},
		"one can take a part": {[3]int{DefaultSegment, 0, DefaultSegment}, false},
	} {
		for _, schedule := range []string{Strict, Weighted} {
			conn := still(t, settings{members: 3, schedule: schedule})
			for i, n := range c.queued {
				conn.members[i].out.Push(reliable.Unit{Buf: make([]byte, n)})
			}
			conn.writeSome(make([]byte, 1000))
			row := conn.plan()
			if goes := row != nil; goes != c.goes || goes && len(row) != 3 {
				t.Errorf("%s, %s: the message is cut into %v", schedule, name, row)
			}
		}
	}
}

// A path that has something to send must keep its rate; what it does while there is nothing to send is not held against it.
func TestPathBelowTheLeastRateIsDropped(t *testing.T) {
	start := time.Unix(1000, 0)
	for name, c := range map[string]struct {
		bytes   int
		after   time.Duration
		waiting bool
		dropped bool
	}{
		"it keeps the rate": {10 * DefaultMinRate, paceOver, true, false},
		"it is below":       {10*DefaultMinRate - 1, paceOver, true, true},
		"it takes nothing":  {0, paceOver, true, true},
		"too soon to say":   {0, paceOver - 1, true, false},
		"there is no more":  {0, paceOver, false, false},
	} {
		conn := still(t, settings{members: 1, schedule: Strict, minRate: DefaultMinRate})
		m := conn.members[0]
		m.health.heard, m.health.last, m.pace.since, m.pace.bytes = start, start.Add(c.after), start, c.bytes
		if c.waiting {
			m.out.Push(reliable.Unit{Buf: make([]byte, 100)})
		}
		conn.look(m, start.Add(c.after))
		if (m.health.verdict != "") != c.dropped {
			t.Errorf("%s: it says %q", name, m.health.verdict)
		}
	}
}

// Where the other side's window leaves less than a row, nothing is cut: it will open, and no path gets ahead meanwhile.
func TestRowWaitsForTheWindow(t *testing.T) {
	for _, schedule := range []string{Strict, Fast, Weighted} {
		for _, short := range []int{0, 1} {
			conn := still(t, settings{members: 3, schedule: schedule})
			row := 3 * conn.payload()
			conn.out.Commit(initialLimit - row + short)
			conn.out.Cut(initialLimit-row+short, 0)
			conn.writeSome(make([]byte, 2*row))
			for _, m := range conn.members {
				m.pace.limit = firstBatch
			}
			if got := conn.plan(); (got == nil) != (short > 0) {
				t.Errorf("%s: the window is %d bytes short of a row, and %v is cut", schedule, short, got)
			}
		}
	}
}

func TestOddBytesGoRound(t *testing.T) {
	conn := still(t, settings{members: 3, schedule: Strict})
	var got [3]int
	for _, n := range []int{1, 2, 4, 100, 2} {
		for _, p := range conn.divide(n, []int{0, 1, 2}) {
			got[p.member] += p.size
		}
		if least, most := slices.Min(got[:]), slices.Max(got[:]); most-least > 1 {
			t.Errorf("after a message of %d bytes the paths have %v", n, got)
		}
	}
}

// Only what is under way on a path that is down moves, and in turns to all that are up.
func TestOnlyDeadPathsAreMovedFrom(t *testing.T) {
	conn := still(t, settings{members: 3, schedule: Strict, degrade: true})
	conn.writeSome(make([]byte, 1000))
	for range 4 {
		for i := range 2 {
			conn.members[i].out.Push(reliable.Unit{Number: conn.out.Next(), Buf: make([]byte, 10)})
			conn.out.Cut(10, conn.out.Next()+1)
		}
	}
	conn.members[1].link = nil
	conn.rebalance()
	var got [3][]uint64
	for i, m := range conn.members {
		for u, _, ok := m.out.Take(); ok; u, _, ok = m.out.Take() {
			got[i] = append(got[i], u.Number)
		}
	}
	if want := [3][]uint64{{0, 2, 4, 6, 1, 5}, nil, {3, 7}}; !slices.Equal(got[0], want[0]) || got[1] != nil || !slices.Equal(got[2], want[2]) {
		t.Errorf("the paths have %v, want %v", got, want)
	}
}

// Shares that wait for all paths are cut ahead of the slower ones; others only as far as a path takes them soon.
func TestSharesAreCutAhead(t *testing.T) {
	const soon = 100_000
	scheme, err := share.Parse("2of3")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		schedule string
		queued   [3]int
		goes     bool
	}{
		{Strict, [3]int{soon, soon, soon}, true}, {Strict, [3]int{0, 0, aheadOf}, false},
		{Fast, [3]int{soon - 1, soon - 1, soon}, true}, {Fast, [3]int{0, soon, soon}, false},
	} {
		conn := still(t, settings{members: 3, schedule: c.schedule, scheme: scheme})
		for i, m := range conn.members {
			m.pace.limit = soon
			m.out.Push(reliable.Unit{Buf: make([]byte, c.queued[i])})
		}
		conn.writeSome(make([]byte, 100_000))
		if row := conn.plan(); (row != nil) != c.goes {
			t.Errorf("%s, %v wait: %v is cut", c.schedule, c.queued, row)
		}
	}
}

// What one path says twice is no second share, and shares of different units are no unit.
func TestSharesOfOneUnitByDifferentPaths(t *testing.T) {
	scheme, err := share.Parse("2of3")
	if err != nil {
		t.Fatal(err)
	}
	s := settings{members: 3, schedule: Strict, scheme: scheme}
	from, text := still(t, s), noise(1, 1000)
	from.writeSome(text)
	frames, _, err := from.buildFrames(from.plan(), 0)
	if err != nil {
		t.Fatal(err)
	}
	take := func(to *Conn, member int, frame uint64, change func(*segment.Data)) error {
		b := bytes.Clone(frames[member].Buf)
		d, payload, err := segment.ParseData(b[segment.HeaderSize:])
		if err != nil {
			t.Fatal(err)
		}
		d.Frame = frame
		if change != nil {
			change(&d)
		}
		d.Put(b, len(payload))
		return to.members[member].take(segment.KindData, b[segment.HeaderSize:])
	}
	to := still(t, s)
	for _, c := range []struct {
		member        int
		frame         uint64
		again, arrive int
	}{{0, 1, 0, 0}, {0, 2, 1, 0}, {0, 2, 2, 0}, {2, 1, 0, 1000}, {1, 1, 0, 1000}, {2, 1, 1, 1000}} {
		if err := take(to, c.member, c.frame, nil); err != nil {
			t.Fatal(err)
		}
		if got := to.members[c.member].count.down.Again; got != uint64(c.again) || to.in.Offset() != uint64(c.arrive) {
			t.Errorf("frame %d of path %d: %d came again, %d bytes are restored", c.frame, c.member, got, to.in.Offset())
		}
	}
	if len(to.in.partial) != 0 {
		t.Errorf("%d units are kept in part", len(to.in.partial))
	}
	got := make([]byte, 2000)
	if n, err := to.readSome(got); err != nil || !bytes.Equal(got[:n], text) {
		t.Errorf("%d bytes are read, %v", n, err)
	}
	for name, change := range map[string]func(*segment.Data){"offset": func(d *segment.Data) { d.Offset++ }, "size": func(d *segment.Data) { d.Size-- }} {
		to := still(t, s)
		if err := take(to, 0, 1, nil); err != nil {
			t.Fatal(err)
		}
		if err := take(to, 1, 1, change); err == nil || !strings.Contains(err.Error(), "of another unit") {
			t.Errorf("another %s: %v", name, err)
		}
	}
}

// A share that arrives while others are being joined in vain, since one of them was changed, is tried too, before the
// session is given up.
func TestShareThatArrivesDuringTheJoinIsTried(t *testing.T) {
	scheme, err := share.Parse("shamir:2of3")
	if err != nil {
		t.Fatal(err)
	}
	s := settings{members: 3, schedule: Strict, scheme: scheme}
	from := still(t, s)
	from.writeSome(noise(1, 10_000))
	frames, _, err := from.buildFrames(from.plan(), 0)
	if err != nil {
		t.Fatal(err)
	}
	for round := range 100 { // the third share nearly always comes while the first two are joined
		to := still(t, s)
		var late sync.WaitGroup
		take := func(member int) {
			segment.SetFrame(frames[member].Buf, 1)
			if err := to.members[member].take(segment.KindData, bytes.Clone(frames[member].Buf[segment.HeaderSize:])); err != nil {
				t.Error(err)
			}
		}
		to.spy = func(member int, _ segment.Data, payload []byte) { // the session's lock is held
			if member != 1 {
				return
			}
			payload[len(payload)/2] ^= 1
			running := make(chan struct{})
			late.Go(func() {
				close(running)
				take(2)
			})
			<-running
		}
		take(0)
		take(1)
		late.Wait()
		if to.in.Offset() != 10_000 {
			t.Fatalf("round %d: all shares are there, and %d bytes are restored", round, to.in.Offset())
		}
	}
}

// An acknowledgement goes out once enough came, or a moment after the first of it.
func TestAcknowledgementsAreGathered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			bytes int
			after time.Duration
			due   bool
		}{{ackEvery, 0, true}, {ackEvery - 1, 0, false}, {1, ackDelay - 1, false}, {1, ackDelay, true}} {
			conn := still(t, settings{members: 1, schedule: Strict})
			m := conn.members[0]
			m.arrived(c.bytes)
			time.Sleep(c.after)
			synctest.Wait()
			conn.mu.Lock()
			if m.ackDue != c.due {
				t.Errorf("%v after %d bytes an acknowledgement is due: %v", c.after, c.bytes, m.ackDue)
			}
			conn.mu.Unlock()
		}
	})
}
