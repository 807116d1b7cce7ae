package stripe

import (
	"net"
	"testing"
	"time"

	"heddle/internal/reliable"
)

// still is a session over n paths that are up, in which nothing runs.
func still(t *testing.T, s settings) *Conn {
	t.Helper()
	s.segment, s.window, s.minMembers = DefaultSegment, DefaultWindow, s.members
	c := &Conn{settings: s, started: true}
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
