package path

import (
	"sync"
	"time"
)

// SuspectPackets is how many datagrams without an answer make a path suspect.
const SuspectPackets = 3

// State is what is known of a path.
type State string

// The states of a path.
const (
	// Unproven: nothing was heard on it yet.
	Unproven State = "unproven"
	// Up: it was heard, and not long left without an answer since.
	Up State = "up"
	// Suspect: several datagrams went out, and nothing was heard since, if ever.
	Suspect State = "suspect"
	// Silent: given up until it is heard again.
	Silent State = "silent"
	// Down: this machine cannot send by it; there is no device, address or route.
	Down State = "down"
)

// When a path becomes suspect or silent. A second is several round trips of any path one would split over.
const (
	suspectAfter = time.Second
	silentAfter  = 4 * time.Second
	silentProbes = 3
)

// Health follows one path of one session by what is heard on it, not by the state of its device. The zero value is
// ready for use and [Unproven]. It may be used from several goroutines.
type Health struct {
	// Proved makes only [Health.Answered] lift a path up; otherwise anything heard does.
	Proved bool

	mu         sync.Mutex
	state      State
	why        string
	unanswered int       // packets sent since something was heard
	first      time.Time // when the first of them was sent
	heard      time.Time
	lost       int // probes without an answer, in a row
	rtt        time.Duration
	sampled    bool // first is a fair start for a round-trip sample
}

// quietBefore is how long a path must have been quiet for the next answer to be one to what was sent last.
const quietBefore = 500 * time.Millisecond

// Sent notes that n datagrams left which the server has cause to answer.
func (h *Health) Sent(now time.Time, n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.unanswered == 0 {
		h.first = now
		h.sampled = now.Sub(h.heard) > quietBefore
	}
	h.unanswered += n
}

// Heard notes that something arrived from the server.
func (h *Health) Heard(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.unanswered > 0 && h.sampled {
		h.sample(now.Sub(h.first))
	}
	h.unanswered, h.heard = 0, now
	if !h.Proved || h.state == Suspect {
		h.lift()
	}
}

// Answered notes an answer that only the server can give, a round trip after its question.
func (h *Health) Answered(now time.Time, rtt time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sample(rtt)
	h.unanswered, h.heard = 0, now
	h.lift()
}

// Reached notes that the server got a question sent by the path, and answered it by another one.
func (h *Health) Reached() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.unanswered = 0
	h.lift()
}

// ProbeLost notes a question without an answer.
func (h *Health) ProbeLost() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lost++
}

// Refused notes that the network said it cannot deliver.
func (h *Health) Refused(why string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.state != Down {
		h.state, h.why = Silent, why
	}
}

// Fail notes that this machine cannot send by the path.
func (h *Health) Fail(why string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.state, h.why, h.unanswered = Down, why, 0
}

// Restore notes that this machine can send by the path again; whether anything comes back must be seen.
func (h *Health) Restore() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.state == Down {
		h.state, h.why, h.unanswered, h.lost = Unproven, "", 0, 0
	}
}

// Judge moves the path on by the time that passed. others is when another path of the session was last heard: without
// proofs, silence means little unless the server still answers elsewhere.
func (h *Health) Judge(now, others time.Time) State {
	h.mu.Lock()
	defer h.mu.Unlock()
	waiting := now.Sub(h.first)
	tried := h.unanswered >= SuspectPackets
	// A path that was never heard is in doubt too, or a session whose first unit is long would wait on a dead path for
	// the unit's end.
	if s := h.get(); (s == Up || s == Unproven && !h.Proved) && tried && waiting > suspectAfter {
		h.state, h.why = Suspect, "sent, and nothing heard since"
		h.lost = 0
	}
	gone := tried && waiting > silentAfter && others.After(h.first.Add(suspectAfter))
	if h.Proved {
		gone = h.lost >= silentProbes
	}
	if h.get() == Suspect && gone {
		h.state, h.why = Silent, "nothing comes back by it"
	}
	return h.get()
}

// State is the state as of the last call that changed it, and why it is so.
func (h *Health) State() (State, string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.get(), h.why
}

// LastHeard is when something was heard last; the zero time where nothing was.
func (h *Health) LastHeard() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.heard
}

// RTT is the smoothed round-trip time, 0 where it is unknown.
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

// sample smooths as RFC 6298, section 2 does.
func (h *Health) sample(rtt time.Duration) {
	if h.rtt == 0 {
		h.rtt = rtt
		return
	}
	h.rtt += (rtt - h.rtt) / 8
}
