package link

import (
	"cmp"
	"context"
	"net"
	"slices"
	"time"

	"heddle/disguise/block"
	"heddle/disguise/cover"
	"heddle/internal/reliable"
	"heddle/path"
)

const (
	claimMost = 16 << 10              // bytes beyond what a woken connection takes, below which no other one wakes
	claimFor  = 50 * time.Millisecond // and how long
	noReset   = silent
)

var _ cover.Gauge = (*Conn)(nil)
var _ net.Conn = (*Link)(nil)

// Conn is one connection of a link. It is the feed of a cover. One goroutine may call Fill, and others Wait and Take.
type Conn struct {
	l         *Link
	serial    int
	datagrams bool
	hello     *hello // until the link is open

	// The fields of Fill.
	lead  []byte // what goes before the next block: a hello, an answer, or the rest of a block of padding
	rest  bool   // it is such a rest, which nobody waits for
	spill [block.Overhead]byte
	plan  []frame

	// The fields of Take.
	part   []byte       // of a block, or of an answer
	need   int          // bytes of the block in part; 0 while its header is not there
	head   block.Header // of that block, and its epoch
	epoch  *receiving
	from   *receiving // the epoch of the last block; changed under the link's lock
	broken error

	// The link's lock guards the rest.
	flight   *reliable.Flight
	log      sentLog
	named    uint64 // the newest block that an ack named
	rtt      rtt
	backoff  int
	timeout  time.Time // when the connection counts as stalled; zero while nothing is under way
	stalled  bool
	probe    bool // it is to ask whether what goes out here arrives
	proved   bool // something arrived, here or at the other side
	newest   arrival
	wonders  bool      // the other side asked whether something arrives here, and no ack named newest yet
	adopted  bool      // by a link at the bridge
	greet    bool      // a block must go out, to show that the connection was accepted
	asked    time.Time // when it last asked whether the client receives; over datagrams
	reset    Code
	left     bool
	watched  bool          // the context of Wait is
	mute     bool          // it sends no more
	wake     chan struct{} // has a value once waiting is over
	waiting  bool
	grant    int // what Wait returns
	woken    time.Time
	claim    int // bytes of it that others leave
	claimEnd time.Time
	path     string // by which it leaves
	route    *route // nil without a path
	count    counters
}

func (l *Link) newConn(datagrams bool) *Conn {
	c := &Conn{l: l, serial: l.serial, datagrams: datagrams, wake: make(chan struct{}, 1), reset: noReset, flight: l.out.NewFlight()}
	l.serial++
	l.conns = append(l.conns, c)
	c.from = l.keys.oldest()
	return c
}

// Wait returns how many bytes of blocks wait to be sent, as soon as some do. See [cover.Feed].
func (c *Conn) Wait(ctx context.Context) (int, error) {
	l := c.l
	l.mu.Lock()
	if err := c.check(); err != nil {
		l.mu.Unlock()
		return 0, err
	}
	if c.claim != 0 {
		c.release()
	}
	select {
	case <-c.wake: // of an earlier call
	default:
	}
	if c.reset != noReset {
		l.mu.Unlock()
		return resetSize, nil
	}
	if !c.watched {
		c.watched = true
		context.AfterFunc(ctx, c.silence)
	}
	c.waiting = true
	l.waiters = append(l.waiters, c)
	l.kick(time.Now())
	l.mu.Unlock()
	var err error
	select {
	case <-c.wake:
	case <-ctx.Done():
		err = ctx.Err()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.waiting {
		c.waiting = false
		l.waiters = slices.DeleteFunc(l.waiters, func(o *Conn) bool { return o == c })
	}
	if err = cmp.Or(err, c.check()); err != nil {
		c.release()
		l.kick(time.Now())
		return 0, err
	}
	return c.grant, nil
}

// Waiting returns how many bytes of blocks the next Fill could send. See [cover.Gauge].
func (c *Conn) Waiting() int {
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	switch {
	case c.check() != nil:
		return 0
	case c.l.over:
		return resetSize
	}
	now := time.Now()
	return c.owed() + c.share(now, false)
}

// Taken returns how many bytes of the stream arrived on the connection. See [cover.Gauge].
func (c *Conn) Taken() uint64 {
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	return c.count.Received
}

// Path names the path that [Conn.Via] named.
func (c *Conn) Path() string {
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	return c.path
}

// Route is what the connections of the path share. See [cover.Gauge].
func (c *Conn) Route() any {
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	if c.route == nil {
		return nil
	}
	return c.route
}

// silence notes that the cover sends no more on this connection. It may still receive.
func (c *Conn) silence() {
	l := c.l
	l.mu.Lock()
	defer l.mu.Unlock()
	c.release()
	if c.mute = true; l.over || c.left {
		return
	}
	now := time.Now()
	l.kick(now)
	l.checkStarved(now)
}

// Reached reports whether the peer has shown that it receives what is sent on the connection. Over datagrams anybody may have
// given its address.
func (c *Conn) Reached() bool {
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	return c.reaches()
}

// l.mu is held.
func (c *Conn) reaches() bool { return !c.datagrams || c.rtt.known || !c.adopted && c.hello == nil }

// check fails when the connection carries nothing any more. l.mu is held.
func (c *Conn) check() error {
	switch {
	case c.left:
		return net.ErrClosed
	case c.l.over && c.reset == noReset:
		return c.l.ended()
	}
	return nil
}

// release gives back what the connection was woken for. l.mu is held.
func (c *Conn) release() {
	c.l.claimed -= c.claim
	c.claim = 0
}

// kick wakes connections for what waits. l.mu is held.
func (l *Link) kick(now time.Time) {
	if l.over {
		return
	}
	for i := 0; i < len(l.waiters); {
		c := l.turn(i)
		own, shared := c.owed(), c.share(now, true)-l.claimed
		if l.claimed > 0 && shared < claimMost { // who was woken takes the little that is there
			shared = 0
		}
		if own+shared == 0 {
			i++
			continue
		}
		l.waiters = slices.Delete(l.waiters, i, i+1)
		c.waiting, c.grant, c.woken = false, max(own+shared, block.Overhead), now
		if c.claim = shared; c.claim > 0 && len(l.waiters) > 0 {
			c.claimEnd = now.Add(claimFor)
			l.alarm(c.claimEnd)
		}
		l.claimed += c.claim
		c.leads(now)
		c.wake <- struct{}{}
	}
}

// wakeAll ends all Waits. l.mu is held.
func (l *Link) wakeAll() []*Conn {
	for _, c := range l.waiters {
		c.waiting, c.grant = false, resetSize
		c.wake <- struct{}{}
	}
	return nil
}

// owed returns the bytes that only this connection can send. l.mu is held.
func (c *Conn) owed() int {
	n := 0
	if !c.rest {
		n = len(c.lead)
	}
	if c.hello != nil {
		n += c.hello.waiting(c)
	}
	if c.reset != noReset {
		n += resetSize
	}
	if c.greet {
		n += block.Overhead
	}
	if c.probe && c.l.keys.send != nil {
		n += dataOverhead
	}
	return n
}

// share returns the bytes that wait for any connection, of those that this one may send. With routed it leaves the stream to the lead
// of its path. l.mu is held.
func (c *Conn) share(now time.Time, routed bool) (n int) {
	l := c.l
	if l.keys.send == nil || c.stalled && l.usable() {
		return 0
	}
	if c.mayAck() && l.ack.due {
		n += ackSize(l.in)
	}
	n += l.rekey.waiting() + l.datagramsWaiting(now)
	if !c.stalled {
		bytes, end := l.out.Waiting()
		if bytes > 0 && !(routed && c.follows(now)) {
			n += bytes + dataOverhead*(1+bytes/(block.MaxData-8))
		}
		if end || l.pingDue {
			n += dataOverhead
		}
	}
	if n > 0 && l.ack.ripe(now) && !l.ack.due {
		n += ackSize(l.in)
	}
	return n
}

// mayAck reports whether acks may go out here. Nothing tells that one is lost, and without it the other side takes its own connections for stalled. l.mu is held.
func (c *Conn) mayAck() bool { return c.works() || !slices.ContainsFunc(c.l.conns, (*Conn).works) }

// works reports whether what goes out here arrives, as far as this side knows. l.mu is held.
func (c *Conn) works() bool { return c.proved && !c.stalled && !c.mute }

// Leave tells the link that the carrier of the connection is gone. Without an error all that was sent may still arrive, and goes
// out again on others only if nothing acknowledges it in time.
func (c *Conn) Leave(err error) {
	l := c.l
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.left {
		return
	}
	c.left = true
	c.release()
	l.conns = slices.DeleteFunc(l.conns, func(o *Conn) bool { return o == c })
	l.heard = slices.DeleteFunc(l.heard, func(o *Conn) bool { return o == c })
	if c.waiting {
		c.waiting = false
		l.waiters = slices.DeleteFunc(l.waiters, func(o *Conn) bool { return o == c })
		c.wake <- struct{}{}
	}
	if l.over {
		return
	}
	now := time.Now()
	if err == nil && c.flight.Len() > 0 && len(l.departed) < maxConns {
		l.departed = append(l.departed, c)
	} else {
		c.lose()
	}
	if err != nil {
		l.ack.again(l, now) // the last ack may be lost
	}
	if l.rekey.outstanding() {
		l.rekey.again = now.Add(minRTO)
		l.alarm(l.rekey.again)
	}
	if len(l.conns) == 0 {
		l.lonely = now
		if err == nil && l.complete() && now.After(l.endBy.Add(-endAfter/2)) { // the other side has waited too
			l.end(nil, silent)
			return
		}
		if l.keys.send == nil {
			l.end(&path.Error{What: "the disguised link", Why: "its connection ended before the bridge answered", Err: err}, silent)
			return
		}
	}
	l.kick(now)
	l.checkStarved(now)
}

// lose gives what did not arrive to other connections. l.mu is held.
func (c *Conn) lose() {
	c.again(c.flight.Fail())
	c.timeout = time.Time{}
}

// again counts bytes that must go out again. l.mu is held.
func (c *Conn) again(bytes int) {
	c.count.Retransmitted += uint64(bytes)
	c.l.count.Retransmitted += uint64(bytes)
}

// started notes that a part of the stream goes out. l.mu is held.
func (c *Conn) started(now time.Time) {
	if c.timeout.IsZero() {
		c.timeout = now.Add(c.rtt.timeout(c.backoff))
		c.l.alarm(c.timeout)
	}
}

// alive notes that something that the connection sent arrived. l.mu is held.
func (c *Conn) alive(now time.Time) {
	c.backoff, c.stalled, c.probe, c.proved = 0, false, false, true
	c.timeout = time.Time{}
	if c.flight.Len() > 0 {
		c.started(now)
	}
}

// tickConns looks for stalled connections. l.mu is held.
func (l *Link) tickConns(due func(time.Time) bool, now time.Time) {
	for _, c := range l.conns {
		if c.claim > 0 && len(l.waiters) > 0 && due(c.claimEnd) {
			c.release()
		}
		if due(c.timeout) {
			c.stall(now)
			due(c.timeout)
		}
		if c.hello != nil && due(c.hello.again) {
			c.hello.again = time.Time{}
		}
	}
	l.departed = slices.DeleteFunc(l.departed, func(c *Conn) bool {
		late := due(c.timeout)
		if late {
			c.lose()
		}
		return late || c.flight.Len() == 0
	})
}

// stall gives the data of a connection to others, because nothing acknowledged it in time. Perhaps the ack alone was lost. So the connection asks for another one
// from time to time. l.mu is held.
func (c *Conn) stall(now time.Time) {
	c.stalled, c.probe = true, true
	c.lose()
	c.backoff++
	c.timeout = now.Add(c.rtt.timeout(c.backoff))
	c.l.ack.again(c.l, now)
	c.l.checkStarved(now)
}
