package split

import (
	"bytes"
	"slices"
	"sync/atomic"
	"time"
)

// drain empties the network before the server of a QUIC download follows to another path. A server that begins its congestion
// control anew at a new address (RFC 9000, section 9.4) also sends again all that is under way, which had arrived or would.
// So after a switch only one datagram of the client goes out. Without further acknowledgements the server's window runs empty,
// while it validates the new path. Its PATH_CHALLENGE is behind all that it sent before, so that the acknowledgements held
// until then cover everything. The network rests for one round trip, and nothing is sent twice. The session's lock guards it.
type drain struct {
	longest time.Duration // how long anything is held at most; 0 turns it off

	to       int          // member that the server has not followed to; -1 if nothing is held
	awaited  atomic.Int32 // to, for receivers, which take no lock
	asked    bool         // a datagram went out by to
	held     [][]byte
	began    time.Time
	end      *time.Timer
	down, up uint64 // bytes of the session at the last switch
}

const (
	// drainLeast is how many bytes must have arrived since the last switch: about an initial window (RFC 9002, section 7.2).
	drainLeast = 32 << 10
	// drainRatio is how many times more must have arrived than was sent. What a program uploads is not held up.
	drainRatio = 8
	// answering is how long the client may take to answer the server's PATH_CHALLENGE.
	answering = time.Millisecond
)

func (d *drain) await(to int) {
	d.to = to
	d.awaited.Store(int32(to))
}

// drop forgets what is held, as the session ends.
func (d *drain) drop() {
	if d.to >= 0 {
		d.end.Stop()
	}
	d.held = nil
	d.await(-1)
}

// beginDrain holds what follows a switch to member i where that helps. s.mu is held.
func (s *Session) beginDrain(i int) {
	d := &s.drain
	if d.longest == 0 || s.prober != nil {
		return
	}
	// The server may be farther away than a unit is long.
	behind := s.current >= 0 && s.members[i].Health.LastHeard().After(s.members[s.current].Health.LastHeard())
	down, up := s.carried()
	s.endVisit(down, behind || d.awaited.Load() >= 0)
	s.endDrain(i)
	arrived, sent := down-d.down, up-d.up
	d.down, d.up = down, up
	if s.current < 0 || behind || arrived < drainLeast || arrived < drainRatio*sent || sameExit(s.members[s.current], s.members[i]) {
		return
	}
	d.await(i)
	d.asked, d.began = false, s.now()
	s.beginVisit(d.began, down)
	d.end = time.AfterFunc(d.longest, func() { s.drained(i) })
}

// carried returns the session's bytes in each direction so far. s.mu is held.
func (s *Session) carried() (down, up uint64) {
	for _, m := range s.members {
		down += m.down.bytes.Load()
		up += m.up.bytes.Load()
	}
	return down, up
}

// sameExit reports whether the server sees one address behind both members, so that it does not notice a switch.
func sameExit(a, b *member) bool {
	exit := a.Path.Describe().Exit
	return exit != "" && exit == b.Path.Describe().Exit
}

// sendDraining sends over the scheduled member, or holds the datagrams until the server has followed there. s.mu is held.
func (s *Session) sendDraining(i int, now time.Time, datagrams [][]byte) {
	d := &s.drain
	if d.to == i && slices.ContainsFunc(datagrams, func(datagram []byte) bool { return !isShortHeader(datagram) }) {
		s.endDrain(i)
	}
	if d.to != i {
		s.sendOn(s.members[i], now, datagrams)
		return
	}
	if !d.asked {
		d.asked = true
		s.sendOn(s.members[i], now, datagrams[:1])
		datagrams = datagrams[1:]
	}
	for _, datagram := range datagrams {
		d.held = append(d.held, bytes.Clone(datagram))
	}
	if len(d.held) >= heldLimit {
		s.endDrain(i)
	}
}

// isShortHeader reports whether a datagram looks like a QUIC packet after the handshake (RFC 9000, section 17.3).
func isShortHeader(datagram []byte) bool { return len(datagram) > 0 && datagram[0]&0xc0 == 0x40 }

// followed records that the server was heard on the member that a switch led to. Packets that arrive within half a round trip after
// the switch belong to an earlier visit. s.mu is held.
func (s *Session) followed(l *member) {
	d := &s.drain
	took := s.now().Sub(d.began)
	if d.to != l.Index || !d.asked || took < s.nearest()/2 {
		return
	}
	d.awaited.Store(-1)
	d.end.Reset(answering)
	s.followedAfter(took)
}

// drained ends a drain to member i whose time is up.
func (s *Session) drained(i int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.drain.to == i && s.open {
		s.endDrain(i)
	}
}

// endDrain sends what is held over member i. The newest datagram goes first: it has the answer to the PATH_CHALLENGE, and the
// older acknowledgements would let the server send by the old path before it reads that. s.mu is held.
func (s *Session) endDrain(i int) {
	d := &s.drain
	if d.to < 0 {
		return
	}
	held := d.held
	d.drop()
	switch n := len(held); {
	case n == 0:
	case !s.enough:
		s.refuseAll(s.now(), held)
	default:
		s.sendOn(s.members[i], s.now(), slices.Concat(held[n-1:], held[:n-1]))
	}
}
