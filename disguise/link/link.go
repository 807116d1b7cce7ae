// Package link is the chopper: it carries one stream of bytes in each direction, and datagrams, in blocks over cover connections
// that join and leave at any time. See docs/disguise-wire.md.
//
// The package does no I/O. A cover asks [Conn.Fill] for the bytes to send, and passes what arrives to [Conn.Take]. The program
// uses the [Link] as a net.Conn.
package link

import (
	"cmp"
	"io"
	"net"
	"sync"
	"time"

	"heddle/disguise/handshake"
	"heddle/internal/reliable"
	"heddle/path"
)

// The limits of one link. Together with what lists about them take, they stay below 8 MiB. Each connection holds at most one
// block besides.
const (
	sendBuffer  = 3 << 20   // bytes written and not acknowledged: 50 Mbit/s for 450 ms, and some more
	leastBuffer = 256 << 10 // the part of sendBuffer that each link has
	unsent      = 256 << 10 // bytes written and not sent
	writeLeast  = 32 << 10  // bytes of room for which a Write goes on
	firstCredit = 262_144   // bytes that each stream may send before the first ack
	widest      = 7 << 19   // bytes that may be received and unread
	maxParts    = 8192      // data blocks that are not acknowledged
	maxPieces   = 16_384    // parts of the stream that may wait for one before them
	maxConns    = 64
	longPath    = 450 * time.Millisecond
)

const (
	patience   = 90 * time.Second // without a connection, or without progress
	endAfter   = 5 * time.Second  // both directions ended: the other side may have lost the last ack
	closeGrace = 30 * time.Second // after Close, for what was written
	restAfter  = 10 * time.Second // without data, until buffers are released
)

// Options configure one end of a link.
type Options struct {
	Bridge handshake.PublicKey // the bridge's key, at both ends
	// Datagram receives datagrams. It must not block, nor call the link, nor keep p.
	Datagram      func(flow uint16, p []byte)
	Memory        *reliable.Loan // for more than half a MiB of buffers; may be nil. It ends with the link
	Unsent        int            // bytes written and not sent; 256 KiB if zero
	Local, Remote net.Addr       // for LocalAddr and RemoteAddr; may be nil
	Patience      time.Duration  // how long a link lives without a connection or progress; 90 s if zero
	RekeyBytes    uint64         // sent in one epoch before the next; 64 GiB if zero
	RekeyBlocks   uint32         // the same in blocks; 2^30 if zero
}

// Link is one end of a link. It is a net.Conn.
type Link struct {
	o      Options
	client bool
	done   chan struct{}
	starve chan struct{}

	writing sync.Mutex // one Write at a time
	mu      sync.Mutex // guards all below, and what Conn says that it guards
	id      uint32
	out     *reliable.ByteSender
	in      *reliable.ByteReceiver

	readable, writable sync.Cond
	readBy, writeBy    deadline
	closed             bool // by Close

	over bool
	err  error // why it ended, unless both directions did

	conns    []*Conn
	departed []*Conn // left in peace, with data that may still arrive
	waiters  []*Conn // in Wait, first come first served
	claimed  int     // bytes that those who were woken will fetch
	serial   int     // of the next connection
	heard    []*Conn // with blocks that no ack named, the first of them first
	acker    *Conn   // that took the last ack
	last     arrival

	keys    epochs
	rekey   rekey
	ack     pendingAck
	dgrams  []queued
	dgbytes int
	ping    time.Time // when to ask for a limit; zero while nothing is blocked
	pings   int
	pingDue bool

	lonely   time.Time // since when no connection is there
	progress time.Time // when the other side last showed that it lives
	closeBy  time.Time // after Close
	endBy    time.Time // when both directions have ended for long enough
	restAt   time.Time // when to release buffers
	timer    *time.Timer
	alarmAt  time.Time
	count    counters
}

func newLink(o Options, client bool) *Link {
	if o.Patience == 0 {
		o.Patience = patience
	}
	if o.RekeyBytes == 0 {
		o.RekeyBytes = 64 << 30
	}
	if o.RekeyBlocks == 0 || o.RekeyBlocks > 1<<31 {
		o.RekeyBlocks = 1 << 30
	}
	now := time.Now()
	l := &Link{o: o, client: client, done: make(chan struct{}), starve: make(chan struct{}, 1), progress: now}
	l.readable.L, l.writable.L = &l.mu, &l.mu
	l.out = reliable.NewByteSender(reliable.ByteSenderOptions{Buffer: sendBuffer, Least: leastBuffer, Unsent: cmp.Or(o.Unsent, unsent), Credit: firstCredit, Parts: maxParts, Memory: o.Memory})
	l.in = reliable.NewByteReceiver(reliable.ByteReceiverOptions{Window: firstCredit, Widest: widest, Pieces: maxPieces, RTT: l.longestRTT, Memory: o.Memory})
	l.timer = time.AfterFunc(time.Hour, l.tick)
	l.alarmAt = now.Add(time.Hour)
	return l
}

// ID returns the number that the bridge gave the link, or zero before the answer arrived.
func (l *Link) ID() uint32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.id
}

// Done is closed when the link ended.
func (l *Link) Done() <-chan struct{} { return l.done }

// Err returns why the link ended. It is nil while the link lives, and if both directions ended in order.
func (l *Link) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Starved receives a value when no connection can carry what waits, or what the other side may have: all left, or are stalled.
func (l *Link) Starved() <-chan struct{} { return l.starve }

// Reset ends the link at once, and tells the other side the code.
func (l *Link) Reset(code Code) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end(&ResetError{Code: code}, code)
}

// Abandon ends the link at once with an error for the program on this side. The other side is told that it was closed.
func (l *Link) Abandon(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end(err, Closed)
}

// violated ends the link because the other side broke the rules. l.mu is held.
func (l *Link) violated(why string) error {
	l.end(&path.Error{What: "the disguised link", Why: "the other side broke the rules: " + why}, BrokenRules)
	return l.err
}

// silent is no code: the other side is not told.
const silent Code = 255

// end ends the link. l.mu is held.
func (l *Link) end(err error, code Code) {
	if l.over {
		return
	}
	l.over, l.err = true, err
	l.timer.Stop()
	for _, c := range l.conns {
		if code != silent && l.keys.send != nil {
			c.reset = code
		}
	}
	l.rekey, l.dgrams, l.departed, l.waiters, l.heard = rekey{}, nil, nil, l.wakeAll(), nil
	l.o.Memory.End()
	close(l.done)
	l.readable.Broadcast()
	l.writable.Broadcast()
}

// ended is what connections get once the link ended. l.mu is held.
func (l *Link) ended() error {
	if l.err == nil {
		return io.EOF
	}
	return l.err
}

// complete reports whether both directions ended, as far as this side knows. l.mu is held.
func (l *Link) complete() bool { return l.out.Proved() && l.in.Ended() && !l.ack.due }

// settle ends the link soon if both directions ended. Until then it repeats the last ack where that was lost. l.mu is held.
func (l *Link) settle(now time.Time) {
	if l.complete() && l.endBy.IsZero() {
		l.endBy = now.Add(endAfter)
		l.alarm(l.endBy)
		l.out.Rest()
	}
}

// alarm makes tick run at the given time at the latest. l.mu is held.
func (l *Link) alarm(at time.Time) {
	if at.Before(l.alarmAt) && !l.over {
		l.alarmAt = at
		l.timer.Reset(time.Until(at))
	}
}

// tick does what is due.
func (l *Link) tick() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return
	}
	now := time.Now()
	next := now.Add(time.Hour)
	due := func(at time.Time) bool { // and otherwise remembers it
		switch {
		case at.IsZero():
			return false
		case at.After(now):
			if at.Before(next) {
				next = at
			}
			return false
		}
		return true
	}
	l.tickConns(due, now)
	if due(l.ack.at) {
		l.ack.due = true
	}
	if due(l.ping) {
		l.pingDue, l.ping = true, time.Time{}
	}
	if due(l.rekey.again) {
		l.rekey.repeat()
	}
	if due(l.keys.forgetAt) {
		l.keys.forget(l.keys.newest)
	}
	if due(l.restAt) {
		l.restAt = time.Time{}
		l.out.Rest()
		l.in.Rest()
	}
	switch {
	case due(l.endBy):
		l.end(nil, silent)
	case due(l.closeBy):
		l.end(&ResetError{Code: Closed}, Closed)
	case len(l.conns) == 0 && due(l.lonely.Add(l.o.Patience)), l.owes() && due(l.progress.Add(l.o.Patience)):
		l.end(&path.Error{What: "the disguised link", Why: "nothing came from the other side for " + l.o.Patience.String(),
			Hint: "check that the bridge runs and that the network reaches it", Err: io.ErrUnexpectedEOF}, silent)
	}
	l.alarmAt = now.Add(100 * time.Hour) // so that alarm below sets the timer
	l.kick(now)
	l.alarm(next)
}

// owes reports whether the other side should have answered something. l.mu is held.
func (l *Link) owes() bool {
	return l.keys.send == nil || !l.out.Drained() || l.out.Closed() && !l.out.Proved() || l.rekey.pending != nil
}

// owing starts the time in which the other side has to show that it lives, if it did not run. l.mu is held.
func (l *Link) owing(now time.Time) {
	if !l.owes() {
		l.progress = now
		l.alarm(now.Add(l.o.Patience))
	}
}

// checkStarved tells the client's program to open a connection. l.mu is held.
func (l *Link) checkStarved(now time.Time) {
	if l.over || l.usable() {
		return
	}
	if len(l.conns) == 0 {
		l.alarm(now.Add(l.o.Patience))
	}
	select {
	case l.starve <- struct{}{}:
	default:
	}
}

// usable reports whether some connection carries data. l.mu is held.
func (l *Link) usable() bool {
	for _, c := range l.conns {
		if !c.stalled && !c.mute {
			return true
		}
	}
	return false
}

// longestRTT is for the window: the slowest connection counts. A side that only receives learns no round-trip time, so it takes
// the path for a long one. l.mu is held.
func (l *Link) longestRTT() time.Duration {
	rtt := longPath
	for _, c := range l.conns {
		rtt = max(rtt, c.rtt.smooth)
	}
	return rtt
}
