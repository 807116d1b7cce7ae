package split

import "time"

// A QUIC server has to validate each new address of its client (RFC 9000, section 8.2). Some lose a session whose path changes
// before they have done so, and the programs of some end then, with all their sessions. Nobody tells the client, and no path looks
// ill, as each of them may be at rest. So status says it.
const (
	// overdue is how long a client repeats itself without an answer: several probe timeouts (RFC 9002, section 6.2).
	overdue = time.Second
	// validation is how many round trips a server needs for a new address: one question of few bytes, as it may not send more
	// there, one of full size, and one round trip for queues.
	validation = 3
	// longUnit is the length of units that no server is known to lose a session by, unless packets are lost as well.
	longUnit = 500 * time.Millisecond
)

// awaitAnswer notes since when the session sends without an answer. s.mu is held.
func (s *Session) awaitAnswer() {
	switch heard := s.group.LastHeard(); {
	case !s.lastSent.After(heard):
		s.unanswered = time.Time{}
	case !s.unanswered.After(heard):
		s.unanswered = s.lastSent
	}
	if text := s.silence(); text != "" && s.group.Once(text) {
		s.log.Warn(text, "session", s.o.Session)
	}
}

// silence says that the server does not answer any more, "" while it does. s.mu is held.
func (s *Session) silence() string {
	heard, quic := s.group.LastHeard(), s.shakes.seen.Load()
	text := "the server does not answer: "
	switch {
	case s.refusedAt.After(heard):
		text += s.refusal
	case quic && !heard.IsZero() && s.unanswered.After(heard) && s.lastSent.Sub(s.unanswered) >= overdue:
		text += "nothing comes back by any path"
	default:
		return ""
	}
	if period := s.sched.Period(); quic && s.switches > 1 && period < longUnit && s.o.Schedule.Every.String() != "none" {
		text += "; some QUIC servers lose a session, or end, if its path changes before they have validated the address: try --every " +
			longUnit.String() + ", and see `heddle probe quic`"
	}
	return text
}

// validates makes the units of "auto" so long that a server can validate an address within one. s.mu is held.
func (s *Session) validates() {
	if s.o.Schedule.Every.Auto {
		s.sched.Lengthen(min(max(s.sched.Period(), (validation*s.slowest()).Round(10*time.Millisecond)), autoLongest))
	}
}
