package link

import (
	"encoding/binary"
	"math"
	"slices"
	"sort"
	"time"

	"heddle/disguise/block"
	"heddle/internal/reliable"
)

const (
	ackEvery    = 64 << 10               // bytes received
	ackDelay    = 100 * time.Millisecond // after the first of them
	ackSoon     = 25 * time.Millisecond  // the same if blocks may be lost; later an ack goes beside data
	ackBeside   = 16 << 10               // bytes received, from which on an ack goes beside data
	ackFixed    = 8 + 8 + 1 + 4 + 4
	maxRanges   = 32
	minRTO      = time.Second
	firstRTO    = 3 * time.Second // before the first sample
	maxRTO      = 60 * time.Second
	logSize     = 64
	maxDoubling = 6
)

// arrival is a block that arrived and that an ack may name.
type arrival struct {
	epoch  byte
	number uint32
	at     time.Time
}

// pendingAck is what an ack has to tell.
type pendingAck struct {
	due   bool
	since time.Time // the first block that no ack covers; zero if there is none
	at    time.Time // when the ack is due
	bytes int
}

// ripe reports whether an ack should go beside data. It also holds if it is due.
func (a *pendingAck) ripe(now time.Time) bool {
	return a.due || a.bytes >= ackBeside || !a.since.IsZero() && now.Sub(a.since) >= ackSoon
}

// arrived counts a block that asks for an ack. l.mu is held.
func (a *pendingAck) arrived(l *Link, size int, soon bool, now time.Time) {
	if a.bytes += size; a.bytes >= ackEvery {
		a.due = true
	}
	delay := ackDelay
	if soon {
		delay = ackSoon
	}
	if a.since.IsZero() {
		a.since = now
	}
	if at := a.since.Add(delay); a.at.IsZero() || at.Before(a.at) {
		a.at = at
		l.alarm(at)
	}
}

// again makes an ack due, since the last one may be lost. l.mu is held.
func (a *pendingAck) again(l *Link, now time.Time) {
	if l.last.at.IsZero() {
		return
	}
	if a.since.IsZero() {
		a.since = now
	}
	a.due = true
}

// ackSize is the size of a block with an ack.
func ackSize(in *reliable.ByteReceiver) int {
	return block.Overhead + ackFixed + 8*len(in.Ranges(maxRanges))
}

// put writes an ack into b, which has room for it at least without ranges. l.mu is held.
func (a *pendingAck) put(l *Link, b []byte, now time.Time) (size int) {
	next, limit := l.in.Ack()
	named := l.last
	if len(l.heard) > 0 {
		c := l.heard[0]
		l.heard = slices.Delete(l.heard, 0, 1)
		named, c.wonders = c.newest, false
	}
	binary.BigEndian.PutUint64(b[0:], next)
	binary.BigEndian.PutUint64(b[8:], limit)
	b[16] = named.epoch
	binary.BigEndian.PutUint32(b[17:], named.number)
	binary.BigEndian.PutUint32(b[21:], uint32(min(now.Sub(named.at).Microseconds(), math.MaxUint32)))
	size = ackFixed
	for _, r := range l.in.Ranges(min(maxRanges, (len(b)-ackFixed)/8)) {
		binary.BigEndian.PutUint32(b[size:], uint32(r.From-next))
		binary.BigEndian.PutUint32(b[size+4:], uint32(r.Size()))
		size += 8
	}
	*a = pendingAck{due: slices.ContainsFunc(l.heard, func(c *Conn) bool { return c.wonders })}
	return size
}

// takeAck takes an ack. l.mu is held.
func (l *Link) takeAck(b []byte, now time.Time) error {
	if len(b) < ackFixed || (len(b)-ackFixed)%8 != 0 || len(b) > ackFixed+8*maxRanges {
		return l.violated("an ack of a wrong length")
	}
	next, limit := binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])
	var storage [maxRanges]reliable.Span
	ranges := storage[:0]
	for r := b[ackFixed:]; len(r) > 0; r = r[8:] {
		from := next + uint64(binary.BigEndian.Uint32(r))
		if from < next {
			return l.violated("an ack beyond all offsets")
		}
		ranges = append(ranges, reliable.Span{From: from, To: from + uint64(binary.BigEndian.Uint32(r[4:]))})
	}
	if err := l.out.Acked(next, limit, ranges); err != nil {
		return l.violated(err.Error())
	}
	delay := time.Duration(binary.BigEndian.Uint32(b[21:])) * time.Microsecond
	complete := uint64(math.MaxUint64)
	if len(ranges) == maxRanges {
		complete = ranges[maxRanges-1].To // what is behind it is not said
	}
	l.named(l.keys.sequence(b[16], binary.BigEndian.Uint32(b[17:])), delay, complete, now)
	for _, c := range l.conns {
		if c.flight.Retire() > 0 {
			c.alive(now)
		}
	}
	for _, c := range l.departed {
		if c.flight.Retire() > 0 {
			c.alive(now)
		}
	}
	if !l.out.Blocked() {
		l.pings, l.ping, l.pingDue = 0, time.Time{}, false
	}
	l.wrote(now)
	l.wakeWriter()
	return nil
}

// named takes what an ack says about the block with the sequence number. l.mu is held.
func (l *Link) named(seq uint64, delay time.Duration, complete uint64, now time.Time) {
	for _, list := range [2][]*Conn{l.conns, l.departed} {
		for _, c := range list {
			at, ok := c.flight.When(seq)
			if !ok {
				at, ok = c.log.find(seq)
			}
			if !ok || seq <= c.named {
				continue
			}
			c.named = seq
			c.rtt.sample(now.Sub(at) - delay)
			if c.datagrams {
				c.again(c.flight.Lose(seq, complete))
			} else {
				c.flight.Arrived(seq)
			}
			c.alive(now)
			return
		}
	}
}

// sentLog remembers when the last blocks of a connection went out, as an ack may name one whose bytes another ack covered before.
type sentLog struct {
	seqs  [logSize]uint64
	times [logSize]time.Time
	count uint64
}

func (g *sentLog) add(seq uint64, at time.Time) {
	g.seqs[g.count%logSize], g.times[g.count%logSize] = seq, at
	g.count++
}

// find returns when the block went out.
func (g *sentLog) find(seq uint64) (at time.Time, ok bool) {
	first := g.count - min(g.count, logSize)
	n := int(g.count - first)
	i := sort.Search(n, func(i int) bool { return g.seqs[(first+uint64(i))%logSize] >= seq })
	k := (first + uint64(i)) % logSize
	if i == n || g.seqs[k] != seq {
		return at, false
	}
	return g.times[k], true
}

// rtt estimates the round-trip time, as RFC 6298 says.
type rtt struct {
	smooth, vary time.Duration
	known        bool
}

func (r *rtt) sample(d time.Duration) {
	if d < 0 {
		return
	}
	if !r.known {
		r.smooth, r.vary, r.known = d, d/2, true
		return
	}
	r.vary += ((r.smooth - d).Abs() - r.vary) / 4
	r.smooth += (d - r.smooth) / 8
}

func (r *rtt) timeout(doublings int) time.Duration {
	t := firstRTO
	if r.known {
		t = max(minRTO, r.smooth+4*r.vary+ackDelay)
	}
	return min(maxRTO, t<<min(doublings, maxDoubling))
}
