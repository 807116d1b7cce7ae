package split

import (
	"context"
	"slices"
	"time"

	"heddle/internal/netutil"
	"heddle/path"
	"heddle/schedule"
)

// The server answers by the path of the last packet up, one round trip later (CoMPS, section 2.3). If only the server sends,
// its traffic stays on one path, even a dead one. So the pacer makes the session send something small.
const (
	nudgeAfter  = time.Millisecond       // time for a packet of the session's own to come first
	quietPeriod = 500 * time.Millisecond // between checks for a silent downlink, if units are packets
	quietLimit  = 15 * time.Second       // then WireGuard itself makes a new handshake
	quietEven   = 4                      // nudges in silence before their interval doubles
)

// setNudge sets how to make the session send something small.
func (s *Session) setNudge(nudge func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nudge = nudge
}

// pace nudges the session when a unit is over and only the server sends, and when the server falls silent.
func (s *Session) pace(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for nudges := 0; ; {
		var nudge func()
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
			s.asleep.Store(false)
			nudges = 0
			if netutil.Sleep(ctx, nudgeAfter) != nil {
				return
			}
			nudge = s.turnIfDue()
		case <-timer.C:
			if nudge = s.turnIfQuiet(); nudge != nil {
				nudges++
			}
		}
		if nudge != nil {
			nudge()
		}
		if s.now().Sub(s.group.LastHeard()) > quietLimit {
			s.asleep.Store(true)
			timer.Reset(time.Hour)
			continue
		}
		timer.Reset(s.lookEvery() << max(0, nudges-quietEven))
	}
}

// lookEvery returns the interval between checks for a silent server.
func (s *Session) lookEvery() time.Duration {
	if p := s.o.Schedule.Every.Period; p > 0 {
		return max(p, 4*nudgeAfter)
	}
	return quietPeriod
}

// turnIfDue begins the next unit if it is due and nothing was sent. It returns the nudge to call, or nil.
func (s *Session) turnIfDue() func() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if s.nudge == nil || !s.open || !s.enough || !s.sched.Due(now) {
		return nil
	}
	return s.turn(now, s.usable)
}

// turnIfQuiet leaves a path on which the server fell silent. The server does not know the other paths yet.
func (s *Session) turnIfQuiet() func() {
	heard := s.group.LastHeard()
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	every := s.lookEvery()
	silent := now.Sub(heard) >= every
	speaking := now.Sub(s.lastSent) < every && s.o.Schedule.Every.Period > 0
	if s.nudge == nil || !s.open || !s.enough || !silent || speaking || s.o.Schedule.Every == (schedule.Every{}) {
		return nil
	}
	others := slices.Clone(s.usable)
	if s.current >= 0 {
		others[s.current] = false
	}
	if !slices.Contains(others, true) {
		return nil
	}
	return s.turn(now, others)
}

// turn begins the next unit on one of the given members. s.mu is held.
func (s *Session) turn(now time.Time, members []bool) func() {
	before := s.current
	i, began := s.sched.Turn(now, members)
	if i < 0 || !began {
		return nil
	}
	s.turned(i)
	s.noteDue(now)
	rotates := false
	if c := s.members[i].Current(); c != nil {
		_, rotates = c.Flow.(path.Rotator)
	}
	if i == before && !rotates {
		return nil
	}
	return s.nudge
}
