package link

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"heddle/disguise/block"
	"heddle/disguise/cover"
)

var (
	errHeader = errors.New("what arrived is no block of this link")
	errWindow = errors.New("a block arrived twice, or far too late")
)

// Take takes bytes that arrived. It changes b. See [cover.Feed].
func (c *Conn) Take(b []byte) error {
	if c.broken != nil {
		return c.broken
	}
	err := c.take(b)
	if err != cover.ErrForeign {
		c.broken = err
	}
	return err
}

func (c *Conn) take(b []byte) error {
	if swallow, err := c.arriving(len(b)); swallow || err != nil {
		return err
	}
	if c.datagrams {
		return c.takeBlocks(b)
	}
	for len(b) > 0 {
		if c.from == nil {
			var err error
			if b, err = c.hello.takeAnswer(c, b); err != nil {
				return err
			}
			continue
		}
		need := max(c.need, block.HeaderSize)
		piece := b
		if len(c.part) > 0 || len(b) < need {
			m := min(need-len(c.part), len(b))
			c.part = append(slices.Grow(c.part, need-len(c.part)), b[:m]...)
			piece, b = c.part, b[m:]
		}
		switch {
		case len(piece) < need:
			return nil
		case c.need == 0:
			var err error
			if c.epoch, c.head, err = c.open(piece); err != nil {
				return err
			}
			c.need = c.head.Size()
			continue
		case len(c.part) == 0:
			b = b[need:]
		}
		c.part, c.need = c.part[:0], 0
		if err := c.takeBlock(c.epoch, c.head, piece[:need]); err != nil {
			return err
		}
	}
	return nil
}

// takeBlocks takes one datagram. It ignores what is no block, as anybody may send datagrams.
func (c *Conn) takeBlocks(b []byte) error {
	foreign := cover.ErrForeign
	for len(b) >= block.Overhead {
		if c.hello != nil && c.hello.takeDatagram(c, b) {
			return nil
		}
		e, h, err := c.open(b)
		if err != nil || h.Size() > len(b) {
			break
		}
		err = c.takeBlock(e, h, b[:h.Size()])
		switch {
		case errors.Is(err, errWindow), errors.Is(err, block.ErrForged):
		case err != nil:
			return err
		default:
			foreign = nil
		}
		b = b[h.Size():]
	}
	return foreign
}

// arriving counts bytes, and reports whether they are of no use, but the connection must live to send a reset.
func (c *Conn) arriving(n int) (swallow bool, err error) {
	l := c.l
	l.mu.Lock()
	defer l.mu.Unlock()
	c.count.WireIn += uint64(n)
	l.count.WireIn += uint64(n)
	return l.over, c.check()
}

// open finds the epoch of a block, and deciphers its header.
func (c *Conn) open(b []byte) (e *receiving, h block.Header, err error) {
	l := c.l
	ok := false
	if e = c.from; e != nil {
		h, ok = e.codec.Header(b)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, other := range l.keys.receive {
		if ok {
			break
		}
		if c.from == nil || c.from.filler || other.seq > c.from.seq || c.datagrams {
			e = other
			h, ok = e.codec.Header(b)
		}
	}
	if !ok {
		return nil, h, errHeader
	}
	if !e.window.Fits(h.Number) {
		return nil, h, errWindow
	}
	return e, h, nil
}

// takeBlock opens a block and does what it says.
func (c *Conn) takeBlock(e *receiving, h block.Header, b []byte) error {
	data, err := e.codec.Open(b, h)
	if err != nil {
		return err
	}
	l := c.l
	l.mu.Lock()
	if l.over {
		defer l.mu.Unlock()
		return c.check()
	}
	if !e.window.Fits(h.Number) { // the window moved on since the header came
		l.mu.Unlock()
		return nil
	}
	e.window.Mark(h.Number)
	if e.filler && (h.Function != block.Data || h.Data > 0) {
		l.mu.Unlock()
		return errHeader
	}
	if c.hello != nil && c.hello.joining {
		c.hello = nil
	}
	c.proved = true
	now := time.Now()
	l.progress = now
	l.last = arrival{byte(e.seq), h.Number, now}
	l.keys.heard(l, c, e, now)
	c.count.PaddingIn += uint64(h.Padding)
	l.count.PaddingIn += uint64(h.Padding)
	err = c.do(h.Function, data, now)
	if l.over {
		err = c.check() // a reset may have to go out here
	} else {
		l.settle(now)
		l.kick(now)
	}
	l.mu.Unlock()
	if h.Function == block.Datagram && err == nil && len(data) >= flowSize && l.o.Datagram != nil {
		l.o.Datagram(binary.BigEndian.Uint16(data), data[flowSize:])
	}
	return err
}

// do does what a block says. Errors end the link. l.mu is held.
func (c *Conn) do(f block.Function, data []byte, now time.Time) error {
	l := c.l
	switch f {
	case block.Data:
		return c.takeData(data, now)
	case block.Fin:
		return c.takeFin(data, now)
	case block.Rst:
		if len(data) != 1 {
			return l.violated("a reset without a code")
		}
		l.end(&ResetError{Code: Code(data[0]), Remote: true}, silent)
		return nil
	case block.RekeyInit, block.RekeyDone:
		return l.takeRekey(f, data, now)
	case block.Ack:
		return l.takeAck(data, now)
	case block.Datagram:
		if len(data) < flowSize {
			return l.violated("a datagram without a flow")
		}
		l.count.DatagramsIn++
		return nil
	}
	return l.violated(fmt.Sprintf("a block with function %d", f))
}

func (c *Conn) takeData(data []byte, now time.Time) error {
	l := c.l
	if len(data) == 0 {
		return nil // padding
	}
	if len(data) < dataHead {
		return l.violated("data without an offset")
	}
	at, p := binary.BigEndian.Uint64(data), data[dataHead:]
	if len(p) == 0 { // a question, for the limit or whether something arrives
		c.asks(block.Overhead, false, now)
		c.wonders, l.ack.due = true, true
		return nil
	}
	fresh, err := l.in.Take(at, p, now)
	if err != nil {
		return l.violated(err.Error())
	}
	if fresh {
		c.count.Received += uint64(len(p))
		l.count.Received += uint64(len(p))
		l.restLater(now)
	} else {
		if l.acker != nil && l.acker != c { // the ack may be lost, so does something arrive there?
			l.acker.probe = true
		}
		c.count.Again += uint64(len(p))
		l.count.Again += uint64(len(p))
	}
	c.asks(len(p), !fresh, now)
	if l.closed && fresh && l.out.Proved() {
		l.end(&ResetError{Code: Closed}, Closed)
		return nil
	}
	l.arrivedInOrder()
	return nil
}

func (c *Conn) takeFin(data []byte, now time.Time) error {
	l := c.l
	if len(data) != 8 {
		return l.violated("an end without a length")
	}
	if at := binary.BigEndian.Uint64(data); at == math.MaxUint64 {
		return l.violated("a stream without an end")
	} else if _, err := l.in.TakeEnd(at, now); err != nil {
		return l.violated(err.Error())
	}
	c.asks(block.Overhead, false, now)
	l.ack.due = true
	l.arrivedInOrder()
	return nil
}

// arrivedInOrder wakes readers. l.mu is held.
func (l *Link) arrivedInOrder() {
	if l.in.AckDue() {
		l.ack.due = true
	}
	if l.in.Ended() {
		l.readable.Broadcast()
	} else if l.in.Buffered() > 0 {
		l.readable.Signal()
	}
}

// asks notes that the newest block of the connection wants an ack. If its bytes came before, the other side may take the
// connection for stalled, so the next ack names it. l.mu is held.
func (c *Conn) asks(size int, again bool, now time.Time) {
	l := c.l
	c.newest = l.last
	listed := slices.Index(l.heard, c)
	switch {
	case again && listed > 0:
		l.heard = slices.Delete(l.heard, listed, listed+1)
		fallthrough
	case again && listed < 0:
		l.heard = slices.Insert(l.heard, 0, c)
	case listed < 0:
		l.heard = append(l.heard, c)
	}
	l.ack.arrived(l, size, again || c.datagrams, now)
}

// restLater puts off the release of buffers. l.mu is held.
func (l *Link) restLater(now time.Time) {
	l.restAt = now.Add(restAfter)
	l.alarm(l.restAt)
}
