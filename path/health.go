package path

import (
	"sync"
	"time"
)

// SuspectPackets is the number of unanswered datagrams that make a path suspect.
const SuspectPackets = 3

type State string

// States of a path.
const (
	Unproven State = "unproven" // nothing was heard on it yet
	Up       State = "up"       // it was heard, and answers are not overdue
	Suspect  State = "suspect"  // several datagrams were sent, and nothing was heard since
	Silent   State = "silent"   // given up until it is heard again
	Down     State = "down"     // this machine cannot send by it: no device, address or route
)

// Times until a path is tested, suspect or silent. A second is several round trips of any useful path.
const (
	doubtAfter   = 500 * time.Millisecond
	suspectAfter = time.Second
	silentAfter  = 4 * time.Second
	silentProbes = 3
)

// Health tracks one path of one session by what is heard on it, not by the state of its device. The zero value is
// [Unproven]. It is safe for concurrent use.
type Health struct {
	Proved bool // the path is proved by [Health.Answered] only, not by any datagram
	// Tested means that the session tests a doubtful path, and calls [Health.ProbeLost] if the test fails. Datagrams without an
	// answer then prove nothing by themselves, since the server answers by the path that it heard last.
	Tested bool

	mu         sync.Mutex
	state      State
	why        string
	unanswered int       // packets sent since something was heard
	first      time.Time // when the first of them was sent
	heard      time.Time
	lost       int // consecutive questions and tests without an answer
	rtt        time.Duration
	sampled    bool // first is a valid start for a round-trip sample
}

// The minimum silence after which the next datagram heard answers the last one sent. Datagrams that the server sent before it followed a
// switch arrive within a round trip, so twice that is enough. A path that carries each third unit of 100 ms is rarely silent for
// longer, and would never be measured again.
const (
	leastQuiet = 100 * time.Millisecond
	mostQuiet  = 500 * time.Millisecond // also where the round trip is unknown
)

func (h *Health) quiet() time.Duration {
	if h.rtt == 0 {
		return mostQuiet
	}
	return min(max(2*h.rtt, leastQuiet), mostQuiet)
}

// Sent records that n datagrams left that the server has reason to answer.
func (h *Health) Sent(now time.Time, n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.unanswered == 0 {
		h.first = now
		h.sampled = now.Sub(h.heard) > h.quiet()
	}
	h.unanswered += n
}

// Heard records that something arrived from the server.
func (h *Health) Heard(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if rtt := now.Sub(h.first); h.unanswered > 0 && h.sampled && rtt < suspectAfter { // else the server had nothing to say
		h.sample(rtt)
	}
	h.unanswered, h.heard = 0, now
	if !h.Proved || h.state == Suspect {
		h.lift()
	}
}

// Answered records an answer that only the server can give, and its round-trip time.
func (h *Health) Answered(now time.Time, rtt time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sample(rtt)
	h.unanswered, h.heard = 0, now
	h.lift()
}

// Reached records that the server got a question sent by the path, and answered by another path.
func (h *Health) Reached() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.unanswered = 0
	h.lift()
}

// ProbeLost records a question or a test without an answer.
func (h *Health) ProbeLost() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lost++
}

// Refused records that the network reported packets as undeliverable.
func (h *Health) Refused(why string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.state != Down {
		h.state, h.why = Silent, why
	}
}

// Fail records that this machine cannot send by the path.
func (h *Health) Fail(why string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.state, h.why, h.unanswered = Down, why, 0
}

// Restore records that this machine can send by the path again. Answers are not yet known.
func (h *Health) Restore() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.state == Down {
		h.state, h.why, h.unanswered, h.lost = Unproven, "", 0, 0
	}
}

// Doubtful reports whether the path needs a test: it is suspect or silent, or datagrams had no answer for some time.
func (h *Health) Doubtful(now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch h.get() {
	case Suspect, Silent:
		return true
	case Down:
		return false
	}
	return h.unanswered >= SuspectPackets && now.Sub(h.first) > doubtAfter
}

// Judge updates the state by the time passed. others is when another path of the session was last heard: without proofs,
// silence means little unless the server still answers elsewhere.
func (h *Health) Judge(now, others time.Time) State {
	h.mu.Lock()
	defer h.mu.Unlock()
	waiting := now.Sub(h.first)
	tried := h.unanswered >= SuspectPackets
	// A healthy path may be unheard while the answers come by others, so it becomes suspect only if a test failed.
	overdue := waiting > suspectAfter && (!h.Tested || h.lost > 0 || !others.After(h.first))
	// An unproven path becomes suspect too. Otherwise a long first unit would be stuck on a dead path until its end.
	if s := h.get(); (s == Up || s == Unproven && !h.Proved) && tried && overdue {
		h.state, h.why = Suspect, "sent, and nothing heard since"
		if !h.Tested {
			h.lost = 0
		}
	}
	gone := tried && waiting > silentAfter && others.After(h.first.Add(suspectAfter))
	if h.Proved || h.Tested {
		gone = h.lost >= silentProbes
	}
	if h.get() == Suspect && gone {
		h.state, h.why = Silent, "nothing comes back by it"
	}
	return h.get()
}

// State returns the state as of the last call that changed it, and its reason.
func (h *Health) State() (State, string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.get(), h.why
}

// LastHeard returns when something was last heard, or the zero time.
func (h *Health) LastHeard() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.heard
}

// RTT returns the smoothed round-trip time, or 0 if unknown.
func (h *Health) RTT() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.rtt
}

func (h *Health) get() State {
	if h.state == "" {
		return Unproven
	}
	return h.state
}

func (h *Health) lift() {
	if h.state != Down {
		h.state, h.why, h.lost = Up, "", 0
	}
}

// sample smooths the round-trip time as in RFC 6298, section 2.
func (h *Health) sample(rtt time.Duration) {
	if h.rtt == 0 {
		h.rtt = rtt
		return
	}
	h.rtt += (rtt - h.rtt) / 8
}
