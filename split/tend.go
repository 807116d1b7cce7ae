package split

import (
	"context"
	"slices"
	"time"
)

const (
	tendEvery     = 250 * time.Millisecond
	handshakeHold = 1500 * time.Millisecond // the longest time for a handshake of the session's own
	answerHold    = time.Second             // the longest time for the packet that confirms it
	reResolve     = 20 * time.Second
)

// tend maintains the paths until ctx ends: it opens them, follows their addresses, judges their health, probes silent ones
// and searches for the server if nothing is heard. It blocks on none of these.
func (s *Session) tend(ctx context.Context) {
	tick := time.NewTicker(tendEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case found := <-s.found:
			s.searching = false
			s.settle(ctx, found)
			continue
		}
		now := s.now()
		s.group.Tend(ctx, now, *s.server.Load())
		s.measure()
		s.mu.Lock()
		s.judge(now)
		s.trySpared(now)
		s.awaitAnswer()
		if s.lastUp.After(s.settled) {
			s.settled, s.heardAt = s.lastUp, *s.server.Load()
			s.places.hear(s.heardAt)
		}
		lost := s.open && s.lost(now)
		if lost {
			s.resolved = now
		}
		s.mu.Unlock()
		s.ask(now)
		s.startSearch(ctx, now, lost)
	}
}

// judge decides which paths may be used, and whether they are enough. s.mu is held.
func (s *Session) judge(now time.Time) {
	v := s.group.Judge(now)
	s.usable, s.enough, s.lastUp = v.Usable, v.Enough, v.Heard
	s.group.Tell(v)
}

// lost reports whether the session sends, and no path has heard anything for long. A search then follows, but only once in a
// while: each lookup tells networks the server's name. s.mu is held.
func (s *Session) lost(now time.Time) bool {
	if s.lastSent.IsZero() && !slices.ContainsFunc(s.members, func(m *member) bool { return m.Trial.Trying() }) {
		return false
	}
	return s.silent(now) && now.Sub(s.resolved) > reResolve
}

// silent reports whether nothing was heard for long from the address that the session sends to.
func (s *Session) silent(now time.Time) bool {
	last := s.since
	for _, t := range []time.Time{s.settled, s.group.LastHeard()} {
		if t.After(last) {
			last = t
		}
	}
	return now.Sub(last) > reResolve
}
