package link

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"math"
	"time"

	"heddle/disguise/block"
)

const (
	dataHead     = 8
	dataOverhead = block.Overhead + dataHead
	resetSize    = block.Overhead + 1
	maxInFill    = 1 << 20     // more blocks than any buffer has room for
	urgentAfter  = time.Second // from when on a rekey goes before data
)

// frame is a block of one Fill.
type frame struct {
	header block.Header
	codec  *block.Codec
	at     int // in the buffer
}

var errNumbers = errors.New("a direction ran out of block numbers before the other side answered a rekey")

// Fill fills b with what waits, and then with padding. See [cover.Feed].
func (c *Conn) Fill(b []byte) (useful int, err error) {
	l := c.l
	l.mu.Lock()
	if err = c.check(); err != nil {
		l.mu.Unlock()
		return 0, err
	}
	now := time.Now()
	c.release()
	c.plan = c.plan[:0]
	at := c.leading(b, now)
	useful = at
	c.greet = false
	for len(b)-at >= block.Overhead {
		h := c.next(b[at+block.HeaderSize:len(b)-block.Overhead+block.HeaderSize], now)
		if h.Data == 0 {
			break
		}
		useful += block.Overhead + h.Data
		at = c.add(h, at, len(b))
	}
	c.pad(at, len(b))
	c.sentOut(len(b), useful)
	l.settle(now)
	l.kick(now)
	l.mu.Unlock()
	c.sealAll(b)
	return useful, nil
}

// add plans a block. If what remains is too small for another one, the block pads it. l.mu is held.
func (c *Conn) add(h block.Header, at, end int) (next int) {
	codec := c.numbered(&h)
	if rest := end - at - h.Size(); rest < block.Overhead {
		h.Padding += rest
	}
	c.plan = append(c.plan, frame{h, codec, at})
	return at + h.Size()
}

// numbered gives a block its number, and returns what seals it. l.mu is held.
func (c *Conn) numbered(h *block.Header) *block.Codec {
	s := c.l.keys.send
	if s == nil {
		s = c.hello.filler
	}
	h.Number = uint32(s.next)
	s.next++
	s.bytes += uint64(h.Size())
	return s.codec
}

// pad fills what remains, with the last block or with more of them. l.mu is held.
func (c *Conn) pad(at, end int) {
	if c.l.keys.send == nil && (c.hello == nil || c.hello.filler == nil) {
		c.plan = append(c.plan, frame{at: at}) // there are no keys yet
		return
	}
	if n := len(c.plan); n > 0 && at < end {
		last := &c.plan[n-1].header
		more := whole(end-at, block.MaxData-last.Padding)
		last.Padding += more
		at += more
	}
	for end-at >= block.Overhead {
		n := whole(end-at-block.Overhead, block.MaxData)
		at = c.add(block.Header{Padding: n}, at, end)
	}
	if at == end {
		return
	}
	if c.datagrams {
		c.plan = append(c.plan, frame{at: at}) // random
		return
	}
	h := block.Header{} // a block that goes on in the next Fill
	codec := c.numbered(&h)
	c.plan = append(c.plan, frame{h, codec, at})
	c.lead, c.rest = c.spill[end-at:], true
}

// whole returns how many bytes of padding leave nothing, or enough for a block.
func whole(room, most int) int {
	if room <= most {
		return room
	}
	if room-most < block.Overhead {
		return room - block.Overhead
	}
	return most
}

// sealAll seals the planned blocks. The link's lock is not held.
func (c *Conn) sealAll(b []byte) {
	for _, f := range c.plan {
		switch size := f.header.Size(); {
		case f.codec == nil:
			_, _ = rand.Read(b[f.at:])
		case f.at+size > len(b):
			f.codec.Seal(c.spill[:0], f.header, nil)
			copy(b[f.at:], c.spill[:])
		default:
			data := b[f.at+block.HeaderSize:][:f.header.Data]
			f.codec.Seal(b[f.at:f.at:f.at+size], f.header, data)
		}
	}
}

// leading writes what goes before blocks. l.mu is held.
func (c *Conn) leading(b []byte, now time.Time) (n int) {
	if c.hello != nil && len(c.lead) == 0 {
		c.hello.prepare(c, len(b), now)
	}
	n = copy(b, c.lead)
	c.lead = c.lead[n:]
	c.rest = c.rest && len(c.lead) > 0
	return n
}

// next writes the data of the next block into b, and returns its header without a number. The header has no data if nothing waits
// that fits. l.mu is held.
func (c *Conn) next(b []byte, now time.Time) (h block.Header) {
	l := c.l
	b = b[:min(len(b), block.MaxData)]
	switch {
	case c.reset != noReset:
		if len(b) == 0 {
			return h
		}
		b[0] = byte(c.reset)
		c.reset = noReset
		return block.Header{Function: block.Rst, Data: 1}
	case l.over || l.keys.send == nil:
		return h
	}
	if l.keys.send.next >= uint64(l.o.RekeyBlocks) || l.keys.send.bytes >= l.o.RekeyBytes {
		l.rekey.start(l, now)
	}
	if l.keys.send.next > math.MaxUint32-maxInFill {
		l.end(errNumbers, silent)
		return h
	}
	if c.probe && len(b) >= dataHead {
		c.probe = false
		c.started(now)
		return c.question(b, now)
	}
	if c.adopted && !c.reaches() && now.Sub(c.asked) >= helloEvery && len(b) >= dataHead {
		c.asked = now
		return c.question(b, now)
	}
	if l.ack.due && c.mayAck() || l.ack.ripe(now) && c.data() {
		if h = c.nextAck(b, now); h.Data > 0 {
			return h
		}
	}
	if c.mayAck() && !l.rekey.since.IsZero() && now.Sub(l.rekey.since) >= urgentAfter {
		if h = c.nextRekey(b, now); h.Data > 0 {
			return h
		}
	}
	if h = c.nextDatagram(b, now); h.Data > 0 {
		return h
	}
	if h = c.nextData(b, now); h.Data > 0 || !c.mayAck() {
		return h
	}
	if h = c.nextRekey(b, now); h.Data > 0 {
		return h
	}
	return c.nextAck(b, now) // rather than padding
}

// data reports whether part of the stream can go out here. l.mu is held.
func (c *Conn) data() bool {
	if c.stalled {
		return false
	}
	bytes, end := c.l.out.Waiting()
	return bytes > 0 || end
}

func (c *Conn) nextAck(b []byte, now time.Time) (h block.Header) {
	a := &c.l.ack
	if !a.due && a.since.IsZero() || len(b) < ackFixed {
		return h
	}
	c.l.acker = c
	return block.Header{Function: block.Ack, Data: a.put(c.l, b, now)}
}

func (c *Conn) nextRekey(b []byte, now time.Time) (h block.Header) {
	r := &c.l.rekey
	if r.waiting() == 0 {
		return h
	}
	h.Function, h.Data = r.put(c.l, b, now)
	return h
}

// nextData takes a part of the stream, its end, or a question for the limit.
func (c *Conn) nextData(b []byte, now time.Time) (h block.Header) {
	l := c.l
	if c.stalled || len(b) < dataHead {
		return h
	}
	p, ok := l.out.Next(len(b) - dataHead)
	switch {
	case !ok && !l.pingDue:
		return h
	case !ok:
		l.pingDue = false
		l.pings++
		l.wrote(now)
		return c.question(b, now)
	}
	seq := l.keys.nextSequence()
	c.flight.Sent(p, seq, now)
	c.log.add(seq, now)
	c.started(now)
	l.restLater(now)
	binary.BigEndian.PutUint64(b, p.From)
	if l.out.IsEnd(p) {
		return block.Header{Function: block.Fin, Data: dataHead}
	}
	l.out.Get(p.From, b[dataHead:dataHead+p.Size()])
	c.count.Sent += uint64(p.Size())
	l.count.Sent += uint64(p.Size())
	l.wakeWriter()
	return block.Header{Data: dataHead + p.Size()}
}

// question asks for an ack.
func (c *Conn) question(b []byte, now time.Time) block.Header {
	binary.BigEndian.PutUint64(b, c.l.out.Written())
	c.log.add(c.l.keys.nextSequence(), now)
	return block.Header{Data: dataHead}
}

// nextSequence is that of the next block.
func (k *epochs) nextSequence() uint64 { return sequence(k.send.seq, k.send.next) }
