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
// and looks the server's name up if nothing is heard. It blocks on none of these.
func (s *Session) tend(ctx context.Context) {
	tick := time.NewTicker(tendEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case found := <-s.name.Found():
			s.moveTo(ctx, found)
			continue
		}
		now := s.now()
		s.group.Tend(ctx, now, *s.server.Load())
		s.mu.Lock()
		s.judge(now)
		s.trySpared(now)
		lost := s.open && s.lost(now)
		if lost {
			s.resolved = now
		}
		s.mu.Unlock()
		s.ask(now)
		if lost {
			s.name.Ask(ctx)
		}
	}
}

// judge decides which paths may be used, and whether they are enough. s.mu is held.
func (s *Session) judge(now time.Time) {
	v := s.group.Judge(now)
	s.usable, s.enough, s.lastUp = v.Usable, v.Enough, v.Heard
	s.group.Tell(v)
}

// lost reports whether the session sends, and no path has heard anything for long. s.mu is held.
func (s *Session) lost(now time.Time) bool {
	if s.lastSent.IsZero() && !slices.ContainsFunc(s.members, func(m *member) bool { return m.Trial.Trying() }) {
		return false
	}
	return now.Sub(s.lastUp) > reResolve && now.Sub(s.since) > reResolve && now.Sub(s.resolved) > reResolve
}
