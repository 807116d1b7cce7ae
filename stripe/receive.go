package stripe

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"heddle/internal/reliable"
	"heddle/internal/segment"
	"heddle/path"
	"heddle/stripe/share"
)

const (
	ackEvery    = 64 << 10              // bytes received on a member
	ackDelay    = 20 * time.Millisecond // after the first of them
	firstWindow = 4 << 20               // initial bytes unread, until the session shows that it needs more
)

// receiver reassembles the stream.
type receiver struct {
	*reliable.Receiver
	partial  map[uint64]*partial // units with some shares received, by number
	readable chan struct{}
	restBy   time.Time   // until then the rest of a torn message is waited for; zero while none is
	rest     *time.Timer // wakes the reader at restBy
}

// partial is a unit that is not restored yet.
type partial struct {
	offset  uint64
	size    int
	shares  [][]byte // bodies of frames by member, each a head and a share
	count   int
	joining bool
}

func (c *Conn) prepareReceiver() {
	row := len(c.members) * c.payload() * max(1, c.scheme.K)
	window := min(max(firstWindow, 4*row), max(c.settings.window, 4*row))
	readable := make(chan struct{}, 1)
	c.in = receiver{partial: map[uint64]*partial{}, readable: readable, rest: time.AfterFunc(restPatience, func() { wake(readable) }), Receiver: reliable.NewReceiver(reliable.ReceiverOptions{
		Window: window, Widest: c.settings.window, Ahead: segment.MaxAhead, RTT: c.longestRTT, Memory: c.memory, Free: giveBuffer})}
}

// longestRTT returns the round-trip time of the slowest path. c.mu is held.
func (c *Conn) longestRTT() (rtt time.Duration) {
	for _, m := range c.members {
		rtt = max(rtt, m.health.rtt)
	}
	return rtt
}

// take handles one frame.
func (m *member) take(kind segment.Kind, body []byte) error {
	c := m.c
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	m.health.heard = now
	switch kind {
	case segment.KindData:
		return m.data(body, now)
	case segment.KindAck:
		a, err := segment.ParseAck(body)
		if err != nil {
			return c.violated(m, "%v", err)
		}
		return c.acked(m, a)
	case segment.KindPing, segment.KindPong:
		return m.ping(kind, body)
	case segment.KindFin:
		return m.fin(body, now)
	case segment.KindClose:
		return m.parted(body)
	case segment.KindWelcome:
		w, err := segment.ParseWelcome(body)
		if err != nil || !c.client || m.welcomed {
			return c.violated(m, "a welcome out of place")
		}
		c.welcomed(m)
		c.out.Allow(w.Limit)
		wake(c.out.wake)
		return nil
	}
	return c.violated(m, "a frame of kind %d out of place", kind)
}

// data handles a segment or a share. c.mu is held, except during join.
func (m *member) data(body []byte, now time.Time) error {
	c := m.c
	d, payload, err := segment.ParseData(body)
	if err != nil {
		return c.violated(m, "%v", err)
	}
	if c.spy != nil {
		c.spy(m.index, d, payload)
	}
	if !c.started && c.degrade {
		c.begin() // the dialling side started with the paths that it has
	}
	u := reliable.Unit{Number: d.Unit, Offset: d.Offset, Size: int(d.Size), Buf: body, Head: dataHead}
	if err := c.in.Check(&u); err != nil {
		return c.violated(m, "%v", err)
	}
	if n := len(payload); n > c.payload() || n != c.scheme.Size(int(d.Size)) {
		return c.violated(m, "a segment of %d bytes for %d of the stream", n, d.Size)
	}
	m.arrived(len(body))
	again := d.Frame < m.received
	m.received = max(m.received, d.Frame+1)
	if again || !c.scheme.None() && c.in.Has(&u) {
		if again {
			m.count.down.Again++
		}
		giveBuffer(body)
		return nil
	}
	u.More = m.precedes(len(payload))
	m.bulk = len(payload) == c.payload()
	if !c.scheme.None() {
		if u.Buf, err = m.join(&u); u.Buf == nil || err != nil {
			return err
		}
		u.Head = 0
	}
	fresh, err := c.in.Take(u, now)
	if err != nil {
		return c.violated(m, "%v", err)
	}
	if !fresh {
		m.count.down.Again++
	}
	c.advanced()
	return nil
}

// advanced wakes the reader and announces progress to the peer. c.mu is held.
func (c *Conn) advanced() {
	if c.in.Readable() && !c.torn(time.Now()) {
		wake(c.in.readable)
	}
	c.ackAll()
}

const (
	restGrace    = 10 * time.Millisecond // beyond a round trip
	restPatience = time.Second           // at most
)

// precedes reports whether a segment of so many bytes is a part of a message that another path has the rest of. Only one that is
// not full is: a message is cut into one segment for each path that is up, in their order. With fast, distant paths may be left out
// at the end of a long transfer, so a segment after a full one counts as whole.
func (m *member) precedes(size int) bool {
	c := m.c
	return c.scheme.None() && size < c.payload() && (c.schedule != Fast || !m.bulk) &&
		slices.ContainsFunc(c.members[m.index+1:], func(other *member) bool { return other.link != nil })
}

// torn reports whether the reader should wait for the rest of a message, so that the program gets in one read what was written at
// once. It waits for what a path may be later than another one, and no longer. c.mu is held.
func (c *Conn) torn(now time.Time) bool {
	if c.finished || !c.in.Readable() || !c.in.Torn(len(c.members)) {
		c.in.restBy = time.Time{}
		return false
	}
	if c.in.restBy.IsZero() {
		wait := restGrace
		for _, m := range c.members {
			wait = max(wait, restGrace+max(m.roundTrip(), m.health.rtt))
		}
		wait = min(wait, restPatience)
		c.in.restBy = now.Add(wait)
		c.in.rest.Reset(wait)
	}
	return now.Before(c.in.restBy)
}

// ackAll makes every path send an ack now if the peer's limit changed. c.mu is held.
func (c *Conn) ackAll() {
	if !c.in.AckDue() {
		return
	}
	for _, m := range c.members {
		m.ackDue = true
		wake(m.wake)
	}
}

// arrived counts a segment and schedules its ack. c.mu is held.
func (m *member) arrived(body int) {
	m.count.down.Segments++
	m.count.down.Bytes += uint64(body + segment.HeaderSize)
	if m.unacked += body; m.unacked >= ackEvery {
		m.ackDue = true
		wake(m.wake)
	} else if !m.ackArmed {
		m.ackArmed = true
		m.ackTimer.Reset(ackDelay)
	}
}

func (m *member) ackNow() {
	m.c.mu.Lock()
	defer m.c.mu.Unlock()
	m.ackArmed = false
	if m.unacked > 0 {
		m.ackDue = true
		wake(m.wake)
	}
}

const dataHead = segment.DataOverhead - segment.HeaderSize

// join adds a share to a unit and returns the unit once enough shares arrived. c.mu is held, but not while it computes.
func (m *member) join(u *reliable.Unit) (whole []byte, err error) {
	c := m.c
	p := c.in.partial[u.Number]
	switch {
	case p == nil:
		p = &partial{offset: u.Offset, size: u.Size, shares: make([][]byte, c.scheme.N)}
		c.in.partial[u.Number] = p
	case p.offset != u.Offset || p.size != u.Size:
		return nil, c.violated(m, "its share of unit %d is of another unit", u.Number)
	case p.shares[m.index] != nil:
		m.count.down.Again++
		giveBuffer(u.Buf)
		return nil, nil
	}
	p.shares[m.index] = u.Buf
	p.count++
	for p.count >= c.scheme.K && !p.joining {
		count := p.count
		shares := make([][]byte, c.scheme.N)
		for i, b := range p.shares {
			if b != nil {
				shares[i] = b[dataHead:]
			}
		}
		p.joining = true
		c.mu.Unlock()
		whole, err := m.restore(u.Number, p.size, shares)
		c.mu.Lock()
		p.joining = false
		if err := c.blame(u.Number, err, whole == nil && count == c.scheme.N); err != nil {
			return nil, err
		}
		if whole != nil {
			delete(c.in.partial, u.Number)
			for _, b := range p.shares {
				giveBuffer(b)
			}
			return whole, nil
		}
		if p.count == count {
			return nil, nil // another share may help
		}
	}
	return nil, nil
}

func (m *member) restore(unit uint64, size int, shares [][]byte) ([]byte, error) {
	if m.codec == nil {
		var err error
		if m.codec, err = m.c.scheme.NewCodec(); err != nil {
			return nil, err
		}
	}
	piece, err := m.codec.Join(unit, size, shares)
	if piece == nil {
		return nil, cmp.Or(err, errors.New("an empty share"))
	}
	whole := takeBuffer(size)
	copy(whole, piece)
	return whole, err
}

// blame drops the members whose shares were modified, and fails the session if nothing can be restored. c.mu is held.
func (c *Conn) blame(unit uint64, err error, hopeless bool) error {
	changed, ok := errors.AsType[*share.ChangedError](err)
	switch {
	case err == nil:
		return nil
	case !ok:
		c.fail(&path.Error{What: c.errorSubject(), Why: "cannot join shares", Err: err})
		return err
	case changed.Sure:
		for _, i := range changed.Shares {
			c.drop(c.members[i], fmt.Sprintf("it changed its share of unit %d", unit))
		}
		return nil
	case hopeless:
		names := ""
		for _, i := range changed.Shares {
			names += " " + c.members[i].name
		}
		failure := &path.Error{What: c.errorSubject(), Why: "shares were changed by one or more of the paths" + names, Hint: "take other paths"}
		c.fail(failure)
		return failure
	}
	return nil
}

func (m *member) fin(body []byte, now time.Time) error {
	c := m.c
	f, err := segment.ParseFin(body)
	if err != nil {
		return c.violated(m, "%v", err)
	}
	again, err := c.in.TakeEnd(reliable.End(f), now)
	if err != nil {
		return c.violated(m, "%v", err)
	}
	if again {
		m.ackDue = true
		wake(m.wake)
	}
	c.advanced()
	return nil
}

// parted handles the peer's close. c.mu is held.
func (m *member) parted(body []byte) error {
	c := m.c
	last, err := segment.ParseClose(body)
	if err != nil {
		return c.violated(m, "%v", err)
	}
	if c.finished {
		return errOver
	}
	what := &path.Error{What: c.errorSubject()}
	switch last.Code {
	case segment.Complete, segment.Closed:
		if !c.in.Ended() {
			return c.violated(m, "it parted before the end of its stream")
		}
		if last.Code == segment.Complete {
			end := c.out.End()
			if end == nil {
				return c.violated(m, "it has all of a stream that has no end")
			}
			if _, err := c.out.Acked(end.Unit+1, 0); err != nil {
				return c.violated(m, "%v", err)
			}
		}
		c.peerClosed = true
		c.finish(nil, segment.Close{Code: segment.Complete})
		return errOver
	case segment.Refused:
		what.Why = "the other side refused: " + last.Why
	default:
		what.Why = "the other side ended the session: " + last.Why
	}
	c.finish(what, segment.Close{Code: segment.Failed, Why: "as you say"})
	return errOver
}
