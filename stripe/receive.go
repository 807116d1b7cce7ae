package stripe

import (
	"errors"
	"fmt"
	"time"

	"heddle/internal/reliable"
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
	*reliable.Receiver
	partial  map[uint64]*partial // units of which shares arrived, by number
	readable chan struct{}
}

// partial is a unit that was not restored yet.
type partial struct {
	offset  uint64
	size    int
	shares  [][]byte // bodies of frames, by leg; of the shares, payload is what follows the head
	count   int
	joining bool
}

func (c *Conn) prepareReceiver() {
	row := len(c.legs) * c.payload() * max(1, c.scheme.K)
	window := min(max(firstWindow, 4*row), max(c.settings.window, 4*row))
	c.in = receiver{partial: map[uint64]*partial{}, readable: make(chan struct{}, 1), Receiver: reliable.NewReceiver(reliable.ReceiverOptions{
		Window: window, Widest: c.settings.window, Ahead: segment.MaxAhead, RTT: c.longestRTT, Reserve: c.reserve, Free: giveBuffer})}
}

// longestRTT is that of the slowest path. c.mu is held.
func (c *Conn) longestRTT() (rtt time.Duration) {
	for _, l := range c.legs {
		rtt = max(rtt, l.health.rtt)
	}
	return rtt
}

// take handles one frame.
func (l *leg) take(kind segment.Kind, body []byte) error {
	c := l.c
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	l.health.heard = now
	switch kind {
	case segment.KindData:
		return l.data(body, now)
	case segment.KindAck:
		a, err := segment.ParseAck(body)
		if err != nil {
			return c.violated(l, "%v", err)
		}
		return c.acked(l, a)
	case segment.KindPing, segment.KindPong:
		return l.ping(kind, body)
	case segment.KindFin:
		return l.fin(body, now)
	case segment.KindBye:
		return l.parted(body)
	case segment.KindWelcome:
		w, err := segment.ParseWelcome(body)
		if err != nil || !c.client || l.welcomed {
			return c.violated(l, "a welcome out of place")
		}
		c.welcomed(l)
		c.out.Allow(w.Limit)
		wake(c.out.wake)
		return nil
	}
	return c.violated(l, "a frame of kind %d out of place", kind)
}

// data takes a segment or a share. c.mu is held, but for the time of joining.
func (l *leg) data(body []byte, now time.Time) error {
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
	u := reliable.Unit{Number: d.Unit, Offset: d.Offset, Size: int(d.Size), Buf: body, Head: dataHead}
	if err := c.in.Check(&u); err != nil {
		return c.violated(l, "%v", err)
	}
	if n := len(payload); n > c.payload() || n != c.scheme.Size(int(d.Size)) {
		return c.violated(l, "a segment of %d bytes for %d of the stream", n, d.Size)
	}
	l.arrived(len(body))
	if d.Frame < l.received || c.in.Has(&u) {
		if c.scheme.None() || d.Frame < l.received {
			l.count.down.Again++
		}
		l.received = max(l.received, d.Frame+1)
		giveBuffer(body)
		return nil
	}
	l.received = d.Frame + 1
	if !c.scheme.None() {
		if u.Buf, err = l.join(&u); u.Buf == nil || err != nil {
			return err
		}
		u.Head = 0
	}
	if _, err := c.in.Take(u, now); err != nil {
		return c.violated(l, "%v", err)
	}
	c.advanced()
	return nil
}

// advanced tells the reader and the other side what may have come into order. c.mu is held.
func (c *Conn) advanced() {
	if c.in.Readable() {
		wake(c.in.readable)
	}
	c.ackAll()
}

// ackAll lets every path say at once how far the other side may go on, where that changed. c.mu is held.
func (c *Conn) ackAll() {
	if !c.in.AckDue() {
		return
	}
	for _, l := range c.legs {
		l.ackDue = true
		wake(l.wake)
	}
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

// join adds a share to a unit, and gives the unit once there are enough of them; nil before that. c.mu is held, and let go
// while it computes.
func (l *leg) join(u *reliable.Unit) (whole []byte, err error) {
	c := l.c
	p := c.in.partial[u.Number]
	switch {
	case p == nil:
		p = &partial{offset: u.Offset, size: u.Size, shares: make([][]byte, c.scheme.N)}
		c.in.partial[u.Number] = p
	case p.offset != u.Offset || p.size != u.Size:
		return nil, c.violated(l, "its share of unit %d is of another unit", u.Number)
	case p.shares[l.index] != nil:
		l.count.down.Again++
		giveBuffer(u.Buf)
		return nil, nil
	}
	p.shares[l.index] = u.Buf
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
		whole, err := l.restore(u.Number, p.size, shares)
		c.mu.Lock()
		p.joining = false
		if err := c.blame(u.Number, err, whole == nil && p.count == c.scheme.N); err != nil {
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
			return nil, nil // perhaps with another share
		}
	}
	return nil, nil
}

func (l *leg) restore(unit uint64, size int, shares [][]byte) ([]byte, error) {
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
	whole := takeBuffer(size)
	copy(whole, piece)
	return whole, err
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

func (l *leg) fin(body []byte, now time.Time) error {
	c := l.c
	f, err := segment.ParseFin(body)
	if err != nil {
		return c.violated(l, "%v", err)
	}
	again, err := c.in.TakeEnd(reliable.End(f), now)
	if err != nil {
		return c.violated(l, "%v", err)
	}
	if again {
		l.ackDue = true
		wake(l.wake)
	}
	c.advanced()
	return nil
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
		if !c.in.Ended() {
			return c.violated(l, "it parted before the end of its stream")
		}
		if bye.Code == segment.Done {
			end := c.out.End()
			if end == nil {
				return c.violated(l, "it has all of a stream that has no end")
			}
			if _, err := c.out.Acked(end.Unit+1, 0); err != nil {
				return c.violated(l, "%v", err)
			}
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
