package stripe

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"heddle/internal/reliable"
	"heddle/internal/segment"
	"heddle/path"
	"heddle/stripe/share"
)

// leg is one path of a session, over all its connections. What is not said to be otherwise is under the session's lock.
type leg struct {
	c        *Conn
	index    int
	name     string
	observer string
	codec    *share.Codec // of its reader alone

	link       *link         // nil where it is down
	idle       chan struct{} // has a token while no connection of the leg runs
	generation uint32
	why        string // why it is down
	welcomed   bool
	stranger   bool // somebody else than the peer answered
	joins      int
	wake       chan struct{}

	out      *reliable.Outbox
	given    int    // bytes of the stream in this transfer
	touched  bool   // it got a segment since the ring was empty
	received uint64 // frames before this number arrived

	ackDue, ackArmed, finDue bool
	unacked                  int // bytes that arrived since the last ack
	ackTimer                 *time.Timer
	pongs                    []uint64
	bye                      *segment.Bye
	byeSent                  bool
	health                   health
	pace                     pace
	count                    struct{ up, down Count }
	lastSkip                 time.Time
}

func newLeg(c *Conn, index int, name string) *leg {
	l := &leg{c: c, index: index, name: name, idle: make(chan struct{}, 1), wake: make(chan struct{}, 1), received: 1}
	l.idle <- struct{}{}
	l.ackTimer = time.AfterFunc(time.Hour, l.ackNow)
	l.ackTimer.Stop()
	return l
}

var errOver = errors.New("the session is over")

// run serves one connection until it ends, and gives the reason. theirs are the frames that the other side has already; the
// caller holds the token of idle.
func (l *leg) run(k *link, theirs uint64) error {
	defer func() { l.idle <- struct{}{} }()
	defer k.shut()
	if err := l.rise(k, theirs); err != nil {
		return err
	}
	written := make(chan error, 1)
	done := make(chan struct{})
	go func() { written <- l.write(k, done) }()
	err := l.read(k)
	close(done)
	if l.over() {
		_ = k.raw.SetReadDeadline(time.Now().Add(lastWords))
	} else {
		k.shut()
	}
	err = telling(err, <-written)
	l.fall(err)
	return err
}

// telling gives the one of two errors that tells more.
func telling(read, write error) error {
	dull := errors.Is(read, io.EOF) || errors.Is(read, net.ErrClosed) || errors.Is(read, os.ErrDeadlineExceeded)
	if write != nil && !errors.Is(write, net.ErrClosed) && dull {
		return write
	}
	return read
}

func (l *leg) over() bool {
	select {
	case <-l.c.over:
		return true
	default:
		return false
	}
}

// rise makes the connection that of the leg.
func (l *leg) rise(k *link, theirs uint64) error {
	c := l.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.finished {
		return errOver
	}
	if err := l.resume(theirs); err != nil {
		return err
	}
	now := time.Now()
	l.link, l.why, l.ackDue, l.finDue, l.pongs = k, "", true, c.out.End() != nil && !c.out.Proved(), nil
	l.joins++
	l.health = health{heard: now, pingDue: true, guess: k.took}
	l.pace = pace{limit: firstBatch, since: now, last: now, confirmed: now}
	c.local = k.raw.LocalAddr()
	if c.remote == nil {
		c.remote = k.raw.RemoteAddr()
	}
	c.running.Add(1)
	c.log.Info("path up", "session", c.name(), "path", l.name, "joins", l.joins)
	c.changed()
	return nil
}

// fall notes that the connection ended.
func (l *leg) fall(err error) {
	c := l.c
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.running.Done()
	l.link = nil
	l.why = l.explain(err)
	if slow := l.slowness(time.Now()); slow != "" && !strings.Contains(l.why, "too slow") { // slowness looks like silence
		l.why += "; it was too slow" + slow
	}
	if c.client && !l.welcomed && notLetIn(err) {
		c.fail(&path.Error{What: c.what(), Why: "the other side does not let this device in", Err: err,
			Hint: "its owner has to allow the key of this device"})
	}
	if !c.finished {
		c.log.Warn("path down", "session", c.name(), "path", l.name, "why", l.why)
	}
	c.changed()
}

// slowness says how slow a path was that ended with something to send; "" where it was not. c.mu is held.
func (l *leg) slowness(now time.Time) string {
	still, confirmed := now.Sub(l.pace.last), now.Sub(l.pace.confirmed)
	switch rate := l.pace.rate; {
	case l.out.Waiting() == 0:
		return ""
	case still > silentAfter/2:
		return fmt.Sprintf(" and took nothing for %v", still.Round(time.Second))
	case rate > 0 && rate < 4*float64(l.c.minRate):
		return fmt.Sprintf(": %.1f kB/s", rate/1000)
	case l.out.Unproved() > 0 && confirmed > silentAfter/2: // the buffers on the way took much, and passed on little
		return fmt.Sprintf(": nothing was confirmed for %v", confirmed.Round(time.Second))
	}
	return ""
}

// explain says for people why the connection ended.
func (l *leg) explain(err error) string {
	switch {
	case l.health.verdict != "":
		return l.health.verdict
	case err == nil || errors.Is(err, io.EOF):
		return "the connection was ended on the way"
	case errors.Is(err, io.ErrUnexpectedEOF):
		return "the connection was cut within a segment"
	}
	return explainTLS(err)
}

// resume puts what the other side does not have back to the front of the queue. It stays on this leg.
func (l *leg) resume(theirs uint64) error {
	again, err := l.out.Resume(theirs)
	if err != nil {
		return l.c.violated(l, "%v", err)
	}
	l.count.up.Again += uint64(again)
	return nil
}

// retire lets go of what the other side has.
func (l *leg) retire() {
	arrived, skipped := l.out.Retire(!l.c.scheme.None() && (!l.c.waits() || l.link == nil))
	if arrived > 0 {
		l.pace.confirmed = time.Now()
	}
	if skipped > 0 {
		l.count.up.Skipped += uint64(skipped)
		l.lastSkip = time.Now()
	}
}

// write sends what is due until the connection ends.
func (l *leg) write(k *link, done chan struct{}) error {
	var control []byte
	var frames []reliable.Unit
	for {
		l.c.mu.Lock()
		control, frames = l.collect(control[:0], frames[:0])
		last := l.byeSent
		l.c.mu.Unlock()
		if len(control)+len(frames) == 0 {
			select {
			case <-l.wake:
				continue
			case <-done:
				if l.silent() {
					return nil
				}
				continue
			}
		}
		start := time.Now()
		err := k.write(control, frames)
		l.c.mu.Lock()
		l.out.Sent()
		if err == nil {
			l.wrote(frames, time.Since(start))
		}
		l.c.mu.Unlock()
		switch {
		case err != nil:
			// What the other side said before may still be on its way, such as that bytes were changed.
			_ = k.raw.SetReadDeadline(time.Now().Add(time.Second / 2))
			return err
		case last:
			return k.tls.CloseWrite()
		}
	}
}

// silent reports whether there is no last word left to say.
func (l *leg) silent() bool {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	return l.bye == nil || l.byeSent
}

// collect takes what is to be sent next.
func (l *leg) collect(control []byte, frames []reliable.Unit) ([]byte, []reliable.Unit) {
	c := l.c
	if l.health.pingDue {
		l.health.pingDue = false
		control = segment.AppendPing(control, segment.KindPing, l.health.ping(time.Now()))
	}
	for _, number := range l.pongs {
		control = segment.AppendPing(control, segment.KindPong, number)
	}
	l.pongs = l.pongs[:0]
	if l.ackDue {
		l.ackDue, l.unacked = false, 0
		next, limit := c.in.Ack()
		control = segment.Ack{Units: next, Limit: limit}.Append(control)
	}
	if end := c.out.End(); l.finDue && end != nil {
		l.finDue = false
		control = segment.Fin(*end).Append(control)
	}
	trailing := c.finished && c.failure == nil && c.trailing()
	if l.bye != nil && !l.byeSent && (!trailing || l.out.Waiting() == 0) {
		l.byeSent = true
		control = l.bye.Append(control)
	}
	if !c.sending() && !trailing {
		return control, frames
	}
	for bytes := 0; bytes < l.pace.limit; {
		f, fresh, ok := l.out.Take()
		if !ok {
			break
		}
		bytes += len(f.Buf)
		if fresh {
			segment.SetFrame(f.Buf, f.Seq)
			l.count.up.Segments++
			l.count.up.Bytes += uint64(len(f.Buf))
		}
		frames = append(frames, f)
	}
	return control, frames
}

// wrote notes that the kernel took frames.
func (l *leg) wrote(frames []reliable.Unit, took time.Duration) {
	bytes := 0
	for _, f := range frames {
		bytes += len(f.Buf)
	}
	l.pace.wrote(bytes, took)
	l.retire()
	wake(l.c.out.wake)
	wake(l.c.out.progress)
}

// read takes what arrives until the connection ends.
func (l *leg) read(k *link) error {
	for {
		kind, body, err := k.reader.Next(takeBuffer)
		if err != nil {
			if errors.Is(err, segment.ErrMalformed) {
				return l.malformed(err)
			}
			return err
		}
		if err := l.take(kind, body); err != nil {
			return err
		}
	}
}

func (l *leg) malformed(err error) error {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	return l.c.violated(l, "%v", err)
}
