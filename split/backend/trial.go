package backend

import (
	"time"

	"heddle/path"
	"heddle/path/group"
)

const (
	trialEvery = 500 * time.Millisecond // between the trials of a member, so that a path is used again within two seconds
	// trialRest is how many packets more than a trial took leave by other paths before the next one, since those of trials are mostly
	// lost. It is small, so that a session of a few packets a second returns within two seconds too.
	trialRest = 2
	// A session that sent so many packets since the last trial has the next one sooner. The server answers by the path that it heard
	// last, and has not always something to send before it hears another.
	busyPackets = 25
	busyEvery   = 200 * time.Millisecond
	// burstEvery is the time between trials with a whole burst. If the path is dead, the server hears nothing of that burst.
	burstEvery = 500 * time.Millisecond
)

// BurstLimit is the most packets that a trial takes of a burst: the acknowledgements of 200 kB. One that ended before the burst would
// be overtaken by the rest.
const BurstLimit = 128

// Trial is a test of a doubtful member with packets of the session. It takes one packet, or the acknowledgements of the next
// burst: a server that sends all of a burst at once does not answer what acknowledges it, but its next burst comes by the path that
// it heard last.
type Trial struct {
	Member int // -1 for no trial
	Burst  bool
}

// trials is what decides when the next one is due.
type trials struct {
	member int       // of the last one
	sent   uint64    // packets of the session on all members when it began
	up     uint64    // packets on its member then
	burst  time.Time // when the last one with a burst began
}

// rested reports whether enough packets left by other paths since the last trial began.
func (s *Members) rested() bool {
	took := min(s.before[s.trials.member].Up.Packets-s.trials.up, BurstLimit) // it may carry more after the trial
	return s.sent()-s.trials.sent-took >= took+trialRest
}

// sent returns the packets of the session on all members.
func (s *Members) sent() (sent uint64) {
	for _, p := range s.before {
		sent += p.Up.Packets
	}
	return sent
}

// Doubts reports whether a member is not used, and only packets can show whether it works again.
func (s *Members) Doubts(member int) bool {
	state, _ := s.group.Members[member].Health.State()
	return !s.usable[member] && (state == path.Silent || state == path.Suspect) && s.Hops()[member].Index != 0
}

// NextTrial returns the trial that is due. pauses says that the session has bursts. A stopped session tests the members that it
// misses. [Members.Judge] must precede.
func (s *Members) NextTrial(now time.Time, pauses bool) Trial {
	if s.enough && !s.rested() {
		return Trial{Member: -1}
	}
	var next *group.Member
	for i, m := range s.group.Members {
		if s.Doubts(i) && m.Trial.Due(now) && (next == nil || m.Trial.Next().Before(next.Trial.Next())) {
			next = m
		}
	}
	if next == nil {
		return Trial{Member: -1}
	}
	every := trialEvery
	if s.sent()-s.trials.sent >= busyPackets {
		every = busyEvery
	}
	next.Trial.Tried(now, every, every)
	s.trials.member, s.trials.sent, s.trials.up = next.Index, s.sent(), s.before[next.Index].Up.Packets
	burst := pauses && s.enough && now.Sub(s.trials.burst) >= burstEvery
	if burst {
		s.trials.burst = now
	}
	return Trial{next.Index, burst}
}
