package stripe

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"

	"heddle/internal/reliable"
	"heddle/stripe/share"
)

// queued gives a member n frames of so many bytes each, as units of their own.
func queued(c *Conn, m *member, n, size int) {
	for range n {
		c.out.Commit(1)
		m.out.Push(reliable.Unit{Number: c.out.Next(), Offset: c.out.Offset(), Size: 1, Buf: make([]byte, size)})
		c.out.Cut(1, c.out.Next()+1)
	}
}

// Below the required number of paths nothing more goes out, not even what was queued for a path that is up.
func TestQueuedSegmentsStayWhereTooFewPathsAreUp(t *testing.T) {
	for _, up := range []int{1, 2} {
		c := still(t, settings{members: 2, schedule: Strict})
		m := c.members[0]
		m.pace.limit, m.ackDue = firstBatch, true
		queued(c, m, 2, 100)
		if up < 2 {
			c.members[1].link = nil
		}
		control, frames := m.collect(nil, nil)
		if len(control) == 0 || (len(frames) > 0) != (up == 2) {
			t.Errorf("%d of 2 paths are up: %d bytes of control and %d segments go out", up, len(control), len(frames))
		}
	}
}

func TestOneWriteTakesWhatThePathCarriesSoon(t *testing.T) {
	c := still(t, settings{members: 1, schedule: Strict})
	m := c.members[0]
	m.pace.limit = 1000
	queued(c, m, 10, 300)
	for _, want := range []int{4, 4, 2, 0} {
		if _, frames := m.collect(nil, nil); len(frames) != want {
			t.Errorf("%d segments go out, want %d", len(frames), want)
		}
		m.out.Sent()
	}
	if m.count.up.Segments != 10 || m.count.up.Bytes != 3000 {
		t.Errorf("counted %+v", m.count.up)
	}
}

// A connection that comes back is told the end of the stream again, and says again what was under way.
func TestNewConnectionGoesOnWhereTheOldOneWas(t *testing.T) {
	c := still(t, settings{members: 1, schedule: Strict})
	m := c.members[0]
	m.pace.limit = firstBatch
	queued(c, m, 3, 100)
	m.collect(nil, nil)
	c.out.Close()
	c.endStream()
	m.finDue = false
	k := m.link
	m.link = nil
	if err := m.attach(k, 2); err != nil {
		t.Fatal(err)
	}
	if !m.finDue || !m.ackDue || m.out.Waiting() != 2 || m.count.up.Again != 2 || m.count.up.Segments != 3 {
		t.Errorf("the end is said %v, acknowledged %v, %d wait, counted %+v", m.finDue, m.ackDue, m.out.Waiting(), m.count.up)
	}
	c.out.Acked(4, 0)
	if err := m.attach(k, 4); err != nil || m.finDue {
		t.Errorf("the end that the other side has is said %v, %v", m.finDue, err)
	}
}

// A share that is needless leaves the queue, unless all paths are to get theirs and this one still can.
func TestNeedlessSharesAreSkipped(t *testing.T) {
	for name, c := range map[string]struct {
		shares, schedule string
		down             bool
		skipped          int
	}{
		"fast":                     {"2of3", Fast, false, 2},
		"strict waits":             {"2of3", Strict, false, 0},
		"strict, the path is down": {"2of3", Strict, true, 2},
		"all are needed":           {"xor:3", Fast, false, 0},
		"no shares":                {"none", Strict, true, 0},
	} {
		scheme, err := share.Parse(c.shares)
		if err != nil {
			t.Fatal(err)
		}
		conn := still(t, settings{members: 3, schedule: c.schedule, scheme: scheme})
		m := conn.members[0]
		queued(conn, m, 3, 10)
		if c.down {
			m.link = nil
		}
		conn.out.Acked(2, 0)
		m.retire()
		if m.count.up.Skipped != uint64(c.skipped) || m.out.Waiting() != 3-c.skipped || m.lastSkip.IsZero() != (c.skipped == 0) {
			t.Errorf("%s: %d skipped, %d wait", name, m.count.up.Skipped, m.out.Waiting())
		}
	}
}

// Of two errors of one connection, people are told the one that says why.
func TestErrorThatSaysMoreIsTold(t *testing.T) {
	reset := &net.OpError{Op: "write", Err: syscall.ECONNRESET}
	odd := errors.New("odd")
	for name, c := range map[string]struct{ read, write, want error }{
		"an end, and why":        {io.EOF, reset, reset},
		"closed here, and why":   {net.ErrClosed, reset, reset},
		"too late, and why":      {os.ErrDeadlineExceeded, reset, reset},
		"the reader knows":       {odd, reset, odd},
		"the writer was stopped": {io.EOF, net.ErrClosed, io.EOF},
		"the writer is done":     {io.EOF, nil, io.EOF},
	} {
		if got := preferErr(c.read, c.write); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
