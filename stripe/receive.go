package stripe

import (
	"errors"
	"fmt"
	"time"

	"heddle/internal/segment"
	"heddle/path"
	"heddle/stripe/share"
)

const (
	ackEvery = 64 << 10              // bytes of a leg
	ackDelay = 20 * time.Millisecond // after the first of them, at most
	// firstWindow is what a session may hold unread before it shows that it needs more.
	firstWindow = 4 << 20
)

// receiver is the half of a session that puts the stream together.
type receiver struct {
	units    map[uint64]*arrival
	next     uint64 // the first unit that is not in order yet; the end counts as one
	offset   uint64 // of the stream, in order
	consumed uint64 // of the stream, read
	limit    uint64 // told to the other side
	window   int
	widened  time.Time
	ready    queue[chunk]
	discard  bool // nobody reads any more
	fin      *segment.Fin
	ended    bool
	readable chan struct{}
}

// arrival is a unit that is not in order yet.
type arrival struct {
	offset  uint64
	size    int
	whole   *chunk
	shares  [][]byte // bodies of frames, by leg; of the shares, payload is what follows the head
	count   int
	joining bool
}

// chunk is a part of the stream in a buffer.
type chunk struct{ buf, rest []byte }

func (c *Conn) prepareReceiver() {
	row := len(c.legs) * c.payload() * max(1, c.scheme.K)
	window := min(max(firstWindow, 4*row), max(c.settings.window, 4*row))
	c.in = receiver{units: map[uint64]*arrival{}, limit: uint64(window), window: window, readable: make(chan struct{}, 1)}
}

// take handles one frame.
func (l *leg) take(kind segment.Kind, body []byte) error {
	c := l.c
	c.mu.Lock()
	defer c.mu.Unlock()
	l.health.heard = time.Now()
	switch kind {
	case segment.KindData:
		return l.data(body)
	case segment.KindAck:
		a, err := segment.ParseAck(body)
		if err != nil {
			return c.violated(l, "%v", err)
		}
		return c.acked(l, a)
	case segment.KindPing, segment.KindPong:
		return l.ping(kind, body)
	case segment.KindFin:
		return l.fin(body)
	case segment.KindBye:
		return l.parted(body)
	case segment.KindWelcome:
		w, err := segment.ParseWelcome(body)
		if err != nil || !c.client || l.welcomed {
			return c.violated(l, "a welcome out of place")
		}
		c.welcomed(l)
		c.out.limit = max(c.out.limit, min(w.Limit, 1<<40))
		wake(c.out.wake)
		return nil
	}
	return c.violated(l, "a frame of kind %d out of place", kind)
}

// data takes a segment or a share. c.mu is held, but for the time of joining.
func (l *leg) data(body []byte) error {
	c := l.c
	d, payload, err := segment.ParseData(body)
	if err != nil {
		return c.violated(l, "%v", err)
	}
	if c.observe != nil {
		c.observe(l.index, d)
	}
	if c.tamper != nil {
		c.tamper(l.index, payload)
	}
	if !c.started && c.degrade {
		c.begin() // the side that dialled goes on with what it has
	}
	if err := l.check(d, len(payload)); err != nil {
		return err
	}
	l.arrived(len(body))
	a := c.in.units[d.Unit]
	if d.Frame < l.received || d.Unit < c.in.next || a != nil && a.whole != nil {
		if c.scheme.None() || d.Frame < l.received {
			l.count.down.Again++
		}
		l.received = max(l.received, d.Frame+1)
		giveBuffer(body)
		return nil
	}
	l.received = d.Frame + 1
	if a == nil {
		a = &arrival{offset: d.Offset, size: int(d.Size)}
		c.in.units[d.Unit] = a
	} else if a.offset != d.Offset || a.size != int(d.Size) {
		return c.violated(l, "its share of unit %d is of another unit", d.Unit)
	}
	if c.scheme.None() {
		a.whole = &chunk{body, payload}
	} else if err := l.join(d.Unit, a, body); err != nil {
		return err
	}
	return c.advance(l)
}

// check holds a segment against what may come. c.mu is held.
func (l *leg) check(d segment.Data, payload int) error {
	c := l.c
	switch {
	case d.Unit >= c.in.next+segment.MaxAhead:
		return c.violated(l, "unit %d, while unit %d is not there", d.Unit, c.in.next)
	case d.Offset+uint64(d.Size) > c.in.limit:
		return c.violated(l, "more than it may send")
	case c.in.fin != nil && d.Unit >= c.in.fin.Unit && d.Unit >= c.in.next:
		return c.violated(l, "a segment behind the end")
	case payload > c.payload() || payload != c.scheme.Size(int(d.Size)):
		return c.violated(l, "a segment of %d bytes for %d of the stream", payload, d.Size)
	}
	return nil
}

// arrived counts a segment, and sees that it is acknowledged. c.mu is held.
func (l *leg) arrived(body int) {
	l.count.down.Segments++
	l.count.down.Bytes += uint64(body + segment.HeaderSize)
	if l.unacked += body; l.unacked >= ackEvery {
		l.ackDue = true
		wake(l.wake)
	} else if !l.ackArmed {
		l.ackArmed = true
		l.ackTimer.Reset(ackDelay)
	}
}

func (l *leg) ackNow() {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	l.ackArmed = false
	if l.unacked > 0 {
		l.ackDue = true
		wake(l.wake)
	}
}

const dataHead = segment.DataOverhead - segment.HeaderSize

// join adds a share to a unit, and restores it once there are enough. c.mu is held, and let go while it computes.
func (l *leg) join(unit uint64, a *arrival, body []byte) error {
	c := l.c
	if a.shares == nil {
		a.shares = make([][]byte, c.scheme.N)
	}
	if a.shares[l.index] != nil {
		l.count.down.Again++
		giveBuffer(body)
		return nil
	}
	a.shares[l.index] = body
	a.count++
	for a.count >= c.scheme.K && !a.joining && a.whole == nil {
		count := a.count
		shares := make([][]byte, c.scheme.N)
		for i, b := range a.shares {
			if b != nil {
				shares[i] = b[dataHead:]
			}
		}
		a.joining = true
		c.mu.Unlock()
		whole, err := l.restore(unit, a.size, shares)
		c.mu.Lock()
		a.joining = false
		if err := c.blame(unit, err, whole == nil && a.count == c.scheme.N); err != nil {
			return err
		}
		if whole == nil && a.count == count {
			return nil // perhaps with another share
		}
		a.whole = whole
	}
	return nil
}

func (l *leg) restore(unit uint64, size int, shares [][]byte) (*chunk, error) {
	if l.codec == nil {
		var err error
		if l.codec, err = l.c.scheme.NewCodec(); err != nil {
			return nil, err
		}
	}
	piece, err := l.codec.Join(unit, size, shares)
	if piece == nil {
		return nil, orErr(err, errors.New("an empty share"))
	}
	b := takeBuffer(size)
	copy(b, piece)
	return &chunk{b, b}, err
}

func orErr(err, otherwise error) error {
	if err == nil {
		return otherwise
	}
	return err
}

// blame drops the legs whose shares were changed, and ends the session where nothing can be restored. c.mu is held.
func (c *Conn) blame(unit uint64, err error, hopeless bool) error {
	changed, ok := errors.AsType[*share.ChangedError](err)
	switch {
	case err == nil:
		return nil
	case !ok:
		c.fail(&path.Error{What: c.what(), Why: "cannot join shares", Err: err})
		return err
	case changed.Sure:
		for _, i := range changed.Shares {
			c.drop(c.legs[i], fmt.Sprintf("it changed its share of unit %d", unit))
		}
		return nil
	case hopeless:
		names := ""
		for _, i := range changed.Shares {
			names += " " + c.legs[i].name
		}
		failure := &path.Error{What: c.what(), Why: "shares were changed by one or more of the paths" + names, Hint: "take other paths"}
		c.fail(failure)
		return failure
	}
	return nil
}

// advance hands on what is in order now. c.mu is held.
func (c *Conn) advance(l *leg) error {
	in := &c.in
	for {
		a := in.units[in.next]
		if a == nil || a.whole == nil {
			break
		}
		if a.offset != in.offset {
			return c.violated(l, "unit %d is at %d, not at %d", in.next, a.offset, in.offset)
		}
		delete(in.units, in.next)
		in.next++
		in.offset += uint64(a.size)
		for i, b := range a.shares {
			if b != nil {
				giveBuffer(b)
				a.shares[i] = nil
			}
		}
		if in.discard || a.size == 0 {
			giveBuffer(a.whole.buf)
			if in.discard {
				c.consume(a.size)
			}
			continue
		}
		in.ready.push(*a.whole)
		wake(in.readable)
	}
	if in.fin != nil && !in.ended && in.next == in.fin.Unit {
		if in.offset != in.fin.Offset {
			return c.violated(l, "its stream ends at %d, not at %d", in.offset, in.fin.Offset)
		}
		in.ended = true
		in.next++
		for _, other := range c.legs {
			other.ackDue = true
			wake(other.wake)
		}
		wake(in.readable)
	}
	return nil
}

func (l *leg) fin(body []byte) error {
	c := l.c
	f, err := segment.ParseFin(body)
	if err != nil {
		return c.violated(l, "%v", err)
	}
	if c.in.fin != nil {
		if *c.in.fin != f {
			return c.violated(l, "its stream has two ends")
		}
		l.ackDue = true
		wake(l.wake)
		return nil
	}
	if f.Unit < c.in.next || f.Offset < c.in.offset || f.Unit > c.in.next+segment.MaxAhead {
		return c.violated(l, "its stream ends before what came of it")
	}
	c.in.fin = &f
	return c.advance(l)
}

// consume notes that so many bytes were read, and lets the other side send more. c.mu is held.
func (c *Conn) consume(n int) {
	in := &c.in
	in.consumed += uint64(n)
	limit := in.consumed + uint64(in.window)
	if limit < in.limit+uint64(in.window)/4 {
		return
	}
	c.widen()
	in.limit = in.consumed + uint64(in.window)
	for _, l := range c.legs {
		if l.link != nil {
			l.ackDue = true
			wake(l.wake)
		}
	}
}

// widen doubles the window where a quarter of it was used up within half a round trip: it may be what limits the rate.
func (c *Conn) widen() {
	in := &c.in
	now := time.Now()
	passed := now.Sub(in.widened)
	in.widened = now
	rtt := time.Millisecond
	for _, l := range c.legs {
		rtt = max(rtt, l.health.rtt)
	}
	more := min(in.window, c.settings.window-in.window)
	if more <= 0 || passed > rtt/2 || c.reserve != nil && !c.reserve(int64(more)) {
		return
	}
	in.window += more
}

// parted takes the other side's last word. c.mu is held.
func (l *leg) parted(body []byte) error {
	c := l.c
	bye, err := segment.ParseBye(body)
	if err != nil {
		return c.violated(l, "%v", err)
	}
	if c.finished {
		return errOver
	}
	what := &path.Error{What: c.what()}
	switch bye.Code {
	case segment.Done, segment.Closed:
		if !c.in.ended {
			return c.violated(l, "it parted before the end of its stream")
		}
		if bye.Code == segment.Done {
			if c.out.fin == nil {
				return c.violated(l, "it has all of a stream that has no end")
			}
			c.out.confirmed = c.out.fin.Unit + 1
		}
		c.told = true
		c.finish(nil, segment.Bye{Code: segment.Done})
		return errOver
	case segment.Refused:
		what.Why = "the other side refused: " + bye.Why
	default:
		what.Why = "the other side ended the session: " + bye.Why
	}
	c.finish(what, segment.Bye{Code: segment.Failed, Why: "as you say"})
	return errOver
}
