package stripe

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"heddle/internal/reliable"
	"heddle/internal/segment"
	"heddle/internal/text"
	"heddle/path"
	"heddle/stripe/share"
)

// member is one path of a session, over all its connections. The session's lock guards all fields unless noted.
type member struct {
	c        *Conn
	index    int
	name     string
	observer string
	codec    *share.Codec // used by the reader only

	link       *link         // nil while down
	idle       chan struct{} // holds a token while no connection of the member runs
	generation uint32
	why        string // why it is down
	welcomed   bool
	stranger   bool // the answering side did not prove the peer's key
	joins      int
	wake       chan struct{}

	out      *reliable.Outbox
	given    int    // bytes of the stream given in this transfer
	touched  bool   // got a segment since the ring was empty
	received uint64 // all frames below this number arrived
	bulk     bool   // the last segment that arrived was full

	ackDue, ackArmed, finDue bool
	unacked                  int // bytes received since the last ack
	ackTimer                 *time.Timer
	pongs                    []uint64
	close                    *segment.Close
	closeSent                bool
	health                   health
	pace                     pace
	count                    struct{ up, down Count }
	lastSkip                 time.Time
}

func newMember(c *Conn, index int, name string) *member {
	m := &member{c: c, index: index, name: name, idle: make(chan struct{}, 1), wake: make(chan struct{}, 1), received: 1}
	m.idle <- struct{}{}
	m.ackTimer = time.AfterFunc(time.Hour, m.ackNow)
	m.ackTimer.Stop()
	return m
}

var errOver = errors.New("the session is over")

// run serves one connection until it ends. The peer has the frames below theirs. The caller holds the token of idle.
func (m *member) run(k *link, theirs uint64) error {
	defer func() { m.idle <- struct{}{} }()
	defer k.shut()
	if err := m.attach(k, theirs); err != nil {
		return err
	}
	written := make(chan error, 1)
	done := make(chan struct{})
	go func() { written <- m.write(k, done) }()
	err := m.read(k)
	close(done)
	if isClosed(m.c.over) {
		_ = k.raw.SetReadDeadline(time.Now().Add(lastWords))
	} else {
		k.shut()
	}
	err = preferErr(err, <-written)
	m.detach(err)
	return err
}

// preferErr returns the more informative of two errors.
func preferErr(read, write error) error {
	dull := errors.Is(read, io.EOF) || errors.Is(read, net.ErrClosed) || errors.Is(read, os.ErrDeadlineExceeded)
	if write != nil && !errors.Is(write, net.ErrClosed) && dull {
		return write
	}
	return read
}

func (m *member) attach(k *link, theirs uint64) error {
	c := m.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.finished {
		return errOver
	}
	if err := m.requeue(theirs); err != nil {
		return err
	}
	now := time.Now()
	m.link, m.why, m.ackDue, m.finDue, m.pongs = k, "", true, c.out.End() != nil && !c.out.Proved(), nil
	m.joins++
	m.health = health{heard: now, pingDue: true, guess: k.took}
	m.pace = pace{limit: firstBatch, since: now, last: now, confirmed: now}
	c.local = k.raw.LocalAddr()
	if c.remote == nil {
		c.remote = k.raw.RemoteAddr()
	}
	c.running.Add(1)
	c.log.Info("path up", "session", c.name(), "path", m.name, "joins", m.joins)
	c.changed()
	return nil
}

func (m *member) detach(err error) {
	c := m.c
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.running.Done()
	m.link = nil
	m.why = m.explain(err)
	if slow := m.slowness(time.Now()); slow != "" && !strings.Contains(m.why, "too slow") { // slowness can look like silence
		m.why += "; it was too slow" + slow
	}
	if c.client && !m.welcomed && notLetIn(err) {
		c.fail(&path.Error{What: c.errorSubject(), Why: "the other side does not let this device in", Err: err,
			Hint: "its owner has to allow the key of this device"})
	}
	if !c.finished {
		c.log.Warn("path down", "session", c.name(), "path", m.name, "why", m.why)
	}
	c.changed()
}

// slowness describes how slow a path was that ended with data to send, or returns "". c.mu is held.
func (m *member) slowness(now time.Time) string {
	still, confirmed := now.Sub(m.pace.last), now.Sub(m.pace.confirmed)
	switch rate := m.pace.rate; {
	case m.out.Waiting() == 0:
		return ""
	case still > silentAfter/2:
		return fmt.Sprintf(" and took nothing for %v", still.Round(time.Second))
	case rate > 0 && rate < 4*float64(m.c.minRate):
		return fmt.Sprintf(": %s/s", text.Size(int64(rate)))
	case m.out.Unproved() > 0 && confirmed > silentAfter/2: // buffers on the path took much and passed on little
		return fmt.Sprintf(": nothing was confirmed for %v", confirmed.Round(time.Second))
	}
	return ""
}

// explain describes the end of the connection for people.
func (m *member) explain(err error) string {
	var timeout net.Error
	var explained *path.Error
	switch {
	case m.health.verdict != "":
		return m.health.verdict
	case err == nil || errors.Is(err, io.EOF):
		return "the connection was ended on the way"
	case errors.Is(err, io.ErrUnexpectedEOF):
		return "the connection was cut within a segment"
	case errors.As(err, &explained):
		return explained.Error()
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "the connection was reset on the way"
	case errors.Is(err, net.ErrClosed):
		return "the connection was ended here"
	case errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return "it took too long"
	case tlsChanged(err):
		return "bytes were changed on the way (" + err.Error() + ")"
	}
	return err.Error()
}

// requeue puts frames that the peer does not have back at the front of this member's queue.
func (m *member) requeue(theirs uint64) error {
	again, err := m.out.Resume(theirs)
	if err != nil {
		return m.c.violated(m, "%v", err)
	}
	m.count.up.Again += uint64(again)
	return nil
}

// retire releases the frames that the peer has, and shares that it no longer needs.
func (m *member) retire() {
	arrived, skipped := m.out.Retire(!m.c.scheme.None() && (!m.c.waits() || m.link == nil))
	if arrived > 0 {
		m.pace.confirmed = time.Now()
	}
	if skipped > 0 {
		m.count.up.Skipped += uint64(skipped)
		m.lastSkip = time.Now()
	}
}

// write sends what is due until the connection ends.
func (m *member) write(k *link, done chan struct{}) error {
	var control []byte
	var frames []reliable.Unit
	for {
		m.c.mu.Lock()
		control, frames = m.collect(control[:0], frames[:0])
		last := m.closeSent
		m.c.mu.Unlock()
		if len(control)+len(frames) == 0 {
			select {
			case <-m.wake:
				continue
			case <-done:
				if m.silent() {
					return nil
				}
				continue
			}
		}
		start := time.Now()
		err := k.write(control, frames)
		m.c.mu.Lock()
		m.out.Sent()
		if err == nil {
			m.wrote(frames, time.Since(start))
		}
		m.c.mu.Unlock()
		switch {
		case err != nil:
			// The peer's last message may still be in flight, such as a report of modified bytes.
			_ = k.raw.SetReadDeadline(time.Now().Add(time.Second / 2))
			return err
		case last:
			return k.tls.CloseWrite()
		}
	}
}

// silent reports whether no close remains to be sent.
func (m *member) silent() bool {
	m.c.mu.Lock()
	defer m.c.mu.Unlock()
	return m.close == nil || m.closeSent
}

// collect returns the frames to send next.
func (m *member) collect(control []byte, frames []reliable.Unit) ([]byte, []reliable.Unit) {
	c := m.c
	if m.health.pingDue {
		m.health.pingDue = false
		control = segment.AppendPing(control, segment.KindPing, m.health.ping(time.Now()))
	}
	for _, number := range m.pongs {
		control = segment.AppendPing(control, segment.KindPong, number)
	}
	m.pongs = m.pongs[:0]
	if m.ackDue {
		m.ackDue, m.unacked = false, 0
		next, limit := c.in.Ack()
		control = segment.Ack{Units: next, Limit: limit}.Append(control)
	}
	if end := c.out.End(); m.finDue && end != nil {
		m.finDue = false
		control = segment.Fin(*end).Append(control)
	}
	trailing := c.finished && c.failure == nil && c.trailing()
	if m.close != nil && !m.closeSent && (!trailing || m.out.Waiting() == 0) {
		m.closeSent = true
		control = m.close.Append(control)
	}
	if !c.sending() && !trailing {
		return control, frames
	}
	for bytes := 0; bytes < m.pace.limit; {
		f, fresh, ok := m.out.Take()
		if !ok {
			break
		}
		bytes += len(f.Buf)
		if fresh {
			segment.SetFrame(f.Buf, f.Seq)
			m.count.up.Segments++
			m.count.up.Bytes += uint64(len(f.Buf))
		}
		frames = append(frames, f)
	}
	return control, frames
}

func (m *member) wrote(frames []reliable.Unit, took time.Duration) {
	bytes := 0
	for _, f := range frames {
		bytes += len(f.Buf)
	}
	m.pace.wrote(bytes, took)
	m.retire()
	wake(m.c.out.wake)
	wake(m.c.out.progress)
}

func (m *member) read(k *link) error {
	for {
		kind, body, err := k.reader.Next(takeBuffer)
		if err != nil {
			if errors.Is(err, segment.ErrMalformed) {
				m.c.mu.Lock()
				defer m.c.mu.Unlock()
				return m.c.violated(m, "%v", err)
			}
			return err
		}
		if err := m.take(kind, body); err != nil {
			return err
		}
	}
}
