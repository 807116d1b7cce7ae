package split

import (
	"bytes"
	"slices"
	"time"

	"heddle/path"
)

// A session that cannot ask the server tests a doubtful path with the next datagrams of the session, all by that path. One
// datagram is not enough: the next one by another path could overtake it, and the answer would come by that path.
const (
	trialEvery = time.Second // between the trials of a member, so that a path is used again within two seconds
	// trialLimit bounds the datagrams of a trial. A session that may not send has a lower bound, as a path that is silent only
	// in the other direction would show them to its network.
	trialLimit        = 32
	stoppedTrialLimit = 4
	// trialShare is the share of trials in what a path carries that is up or unproven, 1 of so many. More would show its network
	// more of the session than the schedule lets it see.
	trialShare = 10
)

// A server that sends all of a burst at once does not answer what acknowledges it. Its next burst comes by the path that it heard
// last, so the trial of a session that pauses goes on with acknowledgements, to the last of the burst.
const (
	PauseLength = 100 * time.Millisecond // at least, between the bursts of a session
	// MostAcknowledgement bounds their size in bytes. A server answers what is larger at once, so such a datagram ends the trial.
	MostAcknowledgement = 256
)

// trial is a test of a member. The session's lock guards it.
type trial struct {
	began  time.Time // zero before the first trial
	until  time.Time // the end of its datagrams
	tail   time.Time // until then it may go on with acknowledgements; zero if it does so already, or may not
	acks   bool      // it goes on with acknowledgements
	left   int       // datagrams that it may still take
	again  [][]byte  // copies, for another path if no answer comes
	usable bool      // the schedule uses the path too
}

// try sends the first datagrams on a doubtful member, and returns their number; 0 if no trial is due. s.mu is held.
func (s *Session) try(now time.Time, datagrams [][]byte) int {
	l := s.trying(now)
	if l == nil {
		return 0
	}
	t := &l.trial
	if t.acks && slices.ContainsFunc(datagrams, func(d []byte) bool { return len(d) > MostAcknowledgement }) {
		t.left = 0
		return 0
	}
	n := min(len(datagrams), t.left)
	t.left -= n
	for _, d := range datagrams[:n] {
		if s.enough {
			t.again = append(t.again, bytes.Clone(d))
		}
	}
	if t.usable {
		l.tested += uint64(n)
	}
	s.sendOn(l, now, datagrams[:n])
	return n
}

// trying returns the member whose trial is under way or due, or nil. s.mu is held.
func (s *Session) trying(now time.Time) *member {
	if s.prober != nil {
		return nil
	}
	if l := s.tried; l != nil {
		t := &l.trial
		if over := !now.Before(t.until) || t.left == 0; over && now.Before(t.tail) {
			t.until, t.tail, t.left, t.acks = t.tail, time.Time{}, trialLimit, true
		}
		if now.Before(t.until) && t.left > 0 && l.unanswered(t.began) && l.Current() != nil {
			return l
		}
		s.tried = nil
	}
	for i, usable := range s.usable {
		l := s.members[i]
		switch state, _ := l.Health.State(); {
		case !l.Health.Doubtful(now):
			l.Trial.Reset()
		case usable && !s.enough: // a stopped session sends nothing by the paths that work
		case state != path.Suspect && state != path.Silent && l.tested*trialShare > l.up.packets.Load():
		case usable && !s.heardBeside(l, l.trial.began): // the doubt may be about the server
		case l.Current() != nil && l.Trial.Due(now):
			s.begin(l, now, usable)
			return l
		}
	}
	return nil
}

// begin begins a trial of a member, which may be usable. s.mu is held.
func (s *Session) begin(l *member, now time.Time, usable bool) {
	l.trial = trial{began: now, until: now.Add(trialLength(l)), left: trialLimit, usable: usable}
	s.tried = l
	l.Trial.Tried(now, trialEvery, trialEvery)
	patience := s.trialPatience()
	if !usable && now.Sub(s.paused) < trialEvery {
		l.trial.tail = now.Add(patience)
	}
	after := func(wait time.Duration, do func()) {
		time.AfterFunc(wait, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.open && l.trial.began.Equal(now) && l.unanswered(now) {
				do()
			}
		})
	}
	after(patience, func() { s.resend(l) })
	after(2*patience, func() { s.conclude(l) })
}

// trialLength is how long all datagrams take the tested path. A datagram by another path may be half a round trip faster.
func trialLength(l *member) time.Duration {
	if rtt := l.Health.RTT(); rtt > 0 {
		return min(rtt/2+20*time.Millisecond, 250*time.Millisecond)
	}
	return 100 * time.Millisecond
}

// longestPatience bounds how long a trial waits for an answer, so that it is concluded before the next one begins.
const longestPatience = trialEvery / 2

// slowest returns the longest known round-trip time of the session's paths, at most longestPatience: of a session that pauses, the
// pauses may be taken for round trips.
func (s *Session) slowest() (rtt time.Duration) {
	for _, l := range s.members {
		rtt = max(rtt, l.Health.RTT())
	}
	return min(rtt, longestPatience)
}

// trialPatience is how long a trial waits for an answer.
func (s *Session) trialPatience() time.Duration {
	return min(2*s.slowest()+100*time.Millisecond, longestPatience)
}

// resend sends the datagrams of a trial by another path, the one that the session uses if possible, since they are probably lost.
// A program that waits for an answer would lose what it repeats in the next trials too. s.mu is held.
func (s *Session) resend(l *member) {
	again := l.trial.again
	l.trial.again, l.trial.left, l.trial.tail = nil, 0, time.Time{}
	if len(again) == 0 || !s.enough {
		return
	}
	to := s.current
	if to < 0 || !s.usable[to] || s.members[to] == l {
		to = slices.IndexFunc(s.members, func(m *member) bool { return m != l && s.usable[m.Index] })
	}
	if to >= 0 {
		s.sendOn(s.members[to], s.now(), again)
	}
}

// conclude counts a trial as lost if the server was heard elsewhere after the answer was due. Otherwise it had nothing to say.
func (s *Session) conclude(l *member) {
	if s.heardBeside(l, l.trial.began.Add(s.slowest())) {
		l.Health.ProbeLost()
		s.judge(s.now())
	}
}

// heardBeside reports whether the server was heard on another member since then. s.mu is held.
func (s *Session) heardBeside(l *member, since time.Time) bool {
	return slices.ContainsFunc(s.members, func(other *member) bool { return other != l && !other.unanswered(since) })
}

// unanswered reports whether nothing was heard on a member since then.
func (m *member) unanswered(since time.Time) bool { return !m.Health.LastHeard().After(since) }

// refuseAll counts datagrams that may not be sent, and tests silent members with the newest of them. s.mu is held.
func (s *Session) refuseAll(now time.Time, datagrams [][]byte) {
	s.refused += uint64(len(datagrams))
	if s.prober != nil || !s.anywhere(now, datagrams) {
		return
	}
	for _, d := range datagrams[max(0, len(datagrams)-stoppedTrialLimit):] {
		s.spared = append(s.spared, bytes.Clone(d))
	}
	s.spared = s.spared[max(0, len(s.spared)-stoppedTrialLimit):]
	s.trySpared(now)
}

// anywhere reports whether the schedule alone would decide on datagrams: no rule matches them, and no QUIC handshake, which must
// keep its path, runs or begins. s.mu is held.
func (s *Session) anywhere(now time.Time, datagrams [][]byte) bool {
	if s.rules != nil && (s.rules.sent == 0 || s.rules.match(now, s.rules.sent+1, false) >= 0) {
		return false
	}
	s.shakes.mu.Lock()
	running := s.shakes.running()
	s.shakes.mu.Unlock()
	return !running && !slices.ContainsFunc(datagrams, func(d []byte) bool {
		return isLong(d) && (len(d) >= quicDatagram || s.rules != nil || s.shakes.seen.Load())
	})
}

// trySpared sends the newest datagrams that were refused on the silent members of a stopped session. It does so again until
// the program sends others, as these may be long in coming. s.mu is held.
func (s *Session) trySpared(now time.Time) {
	if s.enough || now.Sub(s.offered) > suspectMatters {
		s.spared = nil
	}
	if len(s.spared) == 0 {
		return
	}
	for l := s.trying(now); l != nil; l = s.trying(now) {
		l.trial.left, l.trial.tail = 0, time.Time{}
		s.sendOn(l, now, s.spared)
	}
}
