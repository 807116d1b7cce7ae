package pacing

import (
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"heddle/internal/unsent"
)

// Shares are windows, one for each key. The connections of a client by one path have one key, since they meet at the same bottleneck. Congestion control
// knows single connections only. When several begin to send, each looks for the rate of the bottleneck, and together they overflow its queue. If they carry
// one stream, that waits for the connection that lost most. The zero value is ready.
type Shares struct {
	mu sync.Mutex
	of map[any]*share
}

// share is what the connections of one key share.
type share struct {
	mu      sync.Mutex
	members []*Member
	turns   []*Turn // that did not end, oldest first
	looked  time.Time
	least   time.Duration // shortest round trip
	out     int           // bytes of all members that are under way or wait in the kernel
	round   round
	rates   [rounds]float64 // bytes per second that arrived, by round
	rounds  int
	queued  bool // in the last round packets waited on their way
}

// round is what happened since a time.
type round struct {
	began      time.Time
	arrived    float64       // bytes
	sent, lost uint32        // packets
	busiest    uint32        // the most packets of one member that arrived
	busiestRTT time.Duration // of that member
}

const (
	// leastWindow is the least window, in bytes: what the six connections of a browser send at once when they are new.
	leastWindow = 96 << 10
	// A window is for so many round trips: more than one, so that the link is busy while acknowledgements are on their way. While no packet waits on its way, the
	// rate may be that of the window, so the window grows.
	windowQueued, windowFree = 1.6, 2.4
	// queuedFrom is from how many of the shortest round trips on packets wait on their way.
	queuedFrom = 1.25
	// leastRound is the least time over which a rate is taken: acknowledgements come in bursts.
	leastRound = 100 * time.Millisecond
	// A member may send more while less waits in the kernel than leaves within unsentFor, and at most mostUnsent bytes: what waits there arrives after what
	// others send meanwhile.
	unsentFor  = 25 * time.Millisecond
	mostUnsent = 12 << 10
	// A member is slow if another one that has something to send is so many times as fast. Then the stream would wait for it.
	slowShare = 4
	// lookAt is how often the kernel is asked.
	lookAt = 2 * time.Millisecond
	// longestTurn bounds how long a turn waits.
	longestTurn = time.Second
)

// Member is a connection of a share.
type Member struct {
	s    *share
	ask  func() (flow, error)
	flow flow
	end  func()
}

// flow is what the kernel says of what a connection sends.
type flow struct {
	rtt, least  time.Duration // smoothed, and the shortest lately; zero while none is known
	arrived     uint32        // packets so far
	sent, lost  uint32        // packets with data so far, and those sent again
	segment     uint32        // bytes
	window      uint32        // packets that may be under way
	out, unsent int           // bytes that did not arrive, and those of them that wait in the kernel
}

// speed is how many bytes per second the connection may send.
func (f flow) speed() float64 {
	return float64(f.window) * float64(f.segment) / max(f.rtt, time.Millisecond).Seconds()
}

// Join lets a connection share with others of the same key. It returns nil, which never waits, without a key or a socket.
func (a *Shares) Join(key any, c net.Conn) *Member {
	raw := unsent.Socket(c)
	if raw == nil || key == nil {
		return nil
	}
	return a.join(key, func() (flow, error) { return askFlow(raw) })
}

func askFlow(raw syscall.RawConn) (f flow, err error) {
	if failed := raw.Control(func(fd uintptr) { f, err = flowOf(fd) }); failed != nil {
		return f, failed
	}
	return f, err
}

func (a *Shares) join(key any, ask func() (flow, error)) *Member {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.of[key]
	if s == nil {
		s = &share{}
		if a.of == nil {
			a.of = map[any]*share{}
		}
		a.of[key] = s
	}
	m := &Member{s: s, ask: ask}
	m.end = func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.members = slices.DeleteFunc(s.members, func(o *Member) bool { return o == m }); len(s.members) == 0 {
			delete(a.of, key)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.members = append(s.members, m)
	return m
}

// Leave ends the membership.
func (m *Member) Leave() {
	if m != nil {
		m.end()
	}
}

// Turn is the turn of what a member sends as a whole. What began first is sent first.
type Turn struct {
	m     *Member
	waits bool
}

// Begin returns the last turn of the share.
func (m *Member) Begin() *Turn {
	if m == nil {
		return nil
	}
	t := &Turn{m: m}
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	m.s.turns = append(m.s.turns, t)
	return t
}

// End ends the turn.
func (t *Turn) End() {
	if t == nil {
		return
	}
	s := t.m.s
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turns = slices.DeleteFunc(s.turns, func(o *Turn) bool { return o == t })
}

// Wait waits until so many bytes should be written: they will leave soon, and earlier turns write first.
func (t *Turn) Wait(bytes int) {
	if t == nil {
		return
	}
	s := t.m.s
	s.mu.Lock()
	defer s.mu.Unlock()
	t.waits = true
	for began := time.Now(); !s.next(t) && time.Since(began) < longestTurn; {
		s.mu.Unlock()
		time.Sleep(lookAt)
		s.mu.Lock()
	}
	t.waits = false
	s.out += bytes
	t.m.flow.unsent += bytes
}

// next reports whether t is the first turn of those that wait for nothing else. s.mu is held.
func (s *share) next(t *Turn) bool {
	if now := time.Now(); now.Sub(s.looked) >= lookAt/2 {
		s.look(now)
	}
	if s.out >= s.window() {
		return false
	}
	fastest := 0.0
	for _, o := range s.turns {
		fastest = max(fastest, o.m.flow.speed())
	}
	i := slices.IndexFunc(s.turns, func(o *Turn) bool {
		speed := o.m.flow.speed()
		return o.waits && (!s.queued || speed*slowShare >= fastest) && float64(o.m.flow.unsent) <= min(float64(mostUnsent), speed*unsentFor.Seconds())
	})
	return i >= 0 && s.turns[i] == t
}

// window is how many bytes the members together may have under way. s.mu is held.
func (s *share) window() int {
	trips := windowFree
	if s.queued {
		trips = windowQueued
	}
	return max(leastWindow, int(trips*slices.Max(s.rates[:])*s.least.Seconds()))
}

// look asks the kernel how far the members are. s.mu is held.
func (s *share) look(now time.Time) {
	s.looked, s.out = now, 0
	for _, m := range s.members {
		f, err := m.ask()
		if err != nil {
			m.flow.out, m.flow.unsent = 0, 0
			continue
		}
		if s.least == 0 || f.least > 0 && f.least < s.least {
			s.least = f.least
		}
		arrived := f.arrived - m.flow.arrived
		if arrived > s.round.busiest {
			s.round.busiest, s.round.busiestRTT = arrived, f.rtt
		}
		s.round.arrived += float64(arrived) * float64(f.segment)
		s.round.sent += f.sent - m.flow.sent
		s.round.lost += f.lost - m.flow.lost
		s.out += f.out
		m.flow = f
	}
	if least, took := max(s.least, leastRound), time.Since(s.round.began); took >= least {
		if took < 2*least { // or else nobody waited in between
			s.learn(took)
		}
		s.round = round{began: time.Now()}
	}
}

// learn takes the rate of a round. s.mu is held.
func (s *share) learn(took time.Duration) {
	rate := s.round.arrived / took.Seconds()
	if s.round.lost > leastLost && s.round.lost*lossShare > s.round.sent { // the window was too large
		for i := range s.rates {
			s.rates[i] = min(s.rates[i], rate)
		}
	}
	s.rates[s.rounds%rounds] = rate
	s.rounds++
	s.queued = s.round.busiestRTT.Seconds() > queuedFrom*s.least.Seconds()
}
