package path

import (
	"testing"
	"time"
)

// step is one event in the life of a path, at a time in milliseconds.
type step struct {
	ms     int
	do     func(*Health, time.Time)
	others int // when another path was last heard, in milliseconds; 0 means never
	want   State
}

var epoch = time.Unix(1_700_000_000, 0)

func at(ms int) time.Time { return epoch.Add(time.Duration(ms) * time.Millisecond) }

func sent(n int) func(*Health, time.Time) {
	return func(h *Health, now time.Time) { h.Sent(now, n) }
}

func heard(h *Health, now time.Time) { h.Heard(now) }

func nothing(*Health, time.Time) {}

func lostProbe(h *Health, _ time.Time) { h.ProbeLost() }

func answered(h *Health, now time.Time) { h.Answered(now, 20*time.Millisecond) }

func TestHealth(t *testing.T) {
	for name, c := range map[string]struct {
		proved bool
		tested bool
		steps  []step
	}{
		"heard is up":                      {steps: []step{{0, sent(1), 0, Unproven}, {20, heard, 0, Up}}},
		"a few unanswered say nothing":     {steps: []step{{0, heard, 0, Up}, {10, sent(2), 0, Up}, {9000, nothing, 8000, Up}}},
		"unanswered is suspect":            {steps: []step{{0, heard, 0, Up}, {10, sent(3), 0, Up}, {1011, nothing, 0, Suspect}, {1020, heard, 0, Up}}},
		"silent when others are heard":     {steps: []step{{0, heard, 0, Up}, {10, sent(5), 0, Up}, {1100, nothing, 1000, Suspect}, {4100, nothing, 4000, Silent}, {4200, heard, 0, Up}}},
		"silence of all says nothing":      {steps: []step{{0, heard, 0, Up}, {10, sent(5), 0, Up}, {1100, nothing, 5, Suspect}, {60000, nothing, 5, Suspect}}},
		"never heard, others are":          {steps: []step{{0, sent(5), 0, Unproven}, {4100, nothing, 4000, Silent}}},
		"never heard, nobody is":           {steps: []step{{0, sent(5), 0, Unproven}, {1001, nothing, 0, Suspect}, {60000, nothing, 0, Suspect}, {60020, heard, 0, Up}}},
		"never heard, little sent":         {steps: []step{{0, sent(2), 0, Unproven}, {60000, nothing, 59000, Unproven}}},
		"proof: never heard is unproven":   {proved: true, steps: []step{{0, sent(5), 0, Unproven}, {60000, nothing, 59000, Unproven}}},
		"idle stays up":                    {steps: []step{{0, heard, 0, Up}, {3600_000, nothing, 3599_000, Up}}},
		"proof: data is none":              {proved: true, steps: []step{{0, heard, 0, Unproven}, {10, answered, 0, Up}}},
		"proof: suspect, then lost probes": {proved: true, steps: []step{{0, answered, 0, Up}, {10, sent(3), 0, Up}, {1100, nothing, 0, Suspect}, {1600, lostProbe, 0, Suspect}, {2200, lostProbe, 0, Suspect}, {2800, lostProbe, 0, Silent}, {2900, heard, 0, Silent}, {3000, answered, 0, Up}}},
		"proof: suspect is heard again":    {proved: true, steps: []step{{0, answered, 0, Up}, {10, sent(3), 0, Up}, {1100, nothing, 0, Suspect}, {1200, heard, 0, Up}}},
		"proof: the way up alone":          {proved: true, steps: []step{{0, func(h *Health, _ time.Time) { h.Reached() }, 0, Up}, {10, sent(3), 0, Up}, {1100, nothing, 1000, Suspect}}},
		"tests: unheard beside others":     {tested: true, steps: []step{{0, heard, 0, Up}, {10, sent(9), 0, Up}, {60000, nothing, 59000, Up}}},
		"tests: never heard, others are":   {tested: true, steps: []step{{0, sent(9), 0, Unproven}, {60000, nothing, 59000, Unproven}}},
		"tests: unheard as all others":     {tested: true, steps: []step{{0, heard, 0, Up}, {10, sent(3), 0, Up}, {1100, nothing, 5, Suspect}, {60000, nothing, 5, Suspect}}},
		"tests: they fail":                 {tested: true, steps: []step{{0, heard, 0, Up}, {10, sent(3), 0, Up}, {700, lostProbe, 690, Up}, {1100, nothing, 1000, Suspect}, {1700, lostProbe, 1690, Suspect}, {2700, lostProbe, 2690, Silent}, {2800, heard, 0, Up}, {2900, sent(9), 0, Up}, {9000, nothing, 8900, Up}}},
		"down stays down until restored":   {steps: []step{{0, heard, 0, Up}, {1, func(h *Health, _ time.Time) { h.Fail("no device") }, 0, Down}, {2, heard, 0, Down}, {3, func(h *Health, _ time.Time) { h.Restore() }, 0, Unproven}, {4, heard, 0, Up}}},
		"refused by a router":              {steps: []step{{0, heard, 0, Up}, {1, func(h *Health, _ time.Time) { h.Refused("no route") }, 0, Silent}, {2, heard, 0, Up}}},
	} {
		t.Run(name, func(t *testing.T) {
			h := &Health{Proved: c.proved, Tested: c.tested}
			for i, s := range c.steps {
				s.do(h, at(s.ms))
				var others time.Time
				if s.others > 0 {
					others = at(s.others)
				}
				if got := h.Judge(at(s.ms), others); got != s.want {
					t.Fatalf("step %d at %d ms: %s, want %s", i, s.ms, got, s.want)
				}
			}
		})
	}
}

func TestDoubtfulPaths(t *testing.T) {
	h := &Health{Tested: true}
	doubtful := func(ms int, want bool) {
		t.Helper()
		if got := h.Doubtful(at(ms)); got != want {
			t.Errorf("at %d ms: doubtful %v, want %v", ms, got, want)
		}
	}
	doubtful(9000, false) // nothing was sent on it
	h.Sent(at(9000), 2)
	doubtful(10000, false)
	h.Sent(at(10000), 1)
	doubtful(10001, true)
	h.Heard(at(10002))
	doubtful(20000, false)
	h.Refused("no route")
	doubtful(20000, true)
	h.Fail("no device")
	doubtful(20000, false)
}

func TestRoundTripIsSampledOnlyAfterQuiet(t *testing.T) {
	h := &Health{}
	h.Sent(at(0), 1)
	h.Heard(at(30))
	if got := h.RTT(); got != 30*time.Millisecond {
		t.Fatalf("first sample %v", got)
	}
	h.Sent(at(40), 1) // the line was busy: what comes next may answer something older
	h.Heard(at(41))
	if got := h.RTT(); got != 30*time.Millisecond {
		t.Errorf("a busy line gave a sample: %v", got)
	}
	h.Sent(at(2000), 1)
	h.Heard(at(2110))
	if got := h.RTT(); got != 40*time.Millisecond {
		t.Errorf("smoothed %v, want 30 + (110-30)/8 = 40 ms", got)
	}
	h.Sent(at(4000), 1) // the server had nothing to say
	h.Heard(at(6000))
	if got := h.RTT(); got != 40*time.Millisecond {
		t.Errorf("a pause gave a sample: %v", got)
	}
}

// A path that carries a unit of 100 ms now and then is measured at its visits, so that its round trip is current.
func TestRoundTripFollowsAPathInUse(t *testing.T) {
	h := &Health{}
	h.Answered(at(0), 95*time.Millisecond)
	for visit := 1; visit <= 27; visit++ {
		begin := 400 * visit
		h.Sent(at(begin), 1)
		for ms := begin + 25; ms <= begin+125; ms += 5 { // the server follows a switch a round trip later
			h.Heard(at(ms))
			h.Sent(at(ms), 1)
		}
		h.Heard(at(begin + 126))
	}
	if got := h.RTT(); got < 25*time.Millisecond || got > 30*time.Millisecond {
		t.Errorf("after 27 visits of 25 ms: %v", got)
	}
	// The tail of the last visit is no answer to the first datagram of the next.
	before := h.RTT()
	h.Heard(at(20000))
	h.Sent(at(20050), 1)
	h.Heard(at(20051))
	if got := h.RTT(); got != before {
		t.Errorf("what came late gave a sample: %v, before %v", got, before)
	}
}
