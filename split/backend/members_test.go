package backend

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"heddle/path"
	"heddle/split"
)

// newTestMembers makes members whose devices no machine has: none of them is opened.
func newTestMembers(t *testing.T, n int, change func(*Options)) *Members {
	t.Helper()
	server := netip.MustParseAddrPort("192.0.2.1:51820")
	o := Options{Server: server, Options: split.Options{Session: "test", To: server.String(), Log: slog.New(slog.DiscardHandler)}}
	for i := range n {
		name := string(rune('a' + i))
		o.Via = append(o.Via, path.Spec{Name: name, Kind: "if", Arg: "absent-" + name})
	}
	if change != nil {
		change(&o)
	}
	s, err := NewMembers(t.Context(), "kernel", o, 0)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// judged is what Judge told permit.
type judged struct {
	usable []bool
	enough bool
}

func judge(t *testing.T, s *Members, now time.Time) (got judged) {
	t.Helper()
	if err := s.Judge(now, func(usable []bool, enough bool) error {
		got = judged{slices.Clone(usable), enough}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return got
}

func TestPathsAreJudgedByWhatTheOthersHear(t *testing.T) {
	start := time.Unix(1_700_000_000, 0)
	at := func(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }
	for name, c := range map[string]struct {
		heard  []int // paths that are answered each second
		usable []bool
		enough bool
		silent []int
	}{
		"all are heard":      {[]int{0, 1, 2}, []bool{true, true, true}, true, nil},
		"one is silent":      {[]int{0, 1}, []bool{true, true, false}, true, []int{2}},
		"one alone is heard": {[]int{1}, []bool{false, true, false}, false, []int{0, 2}},
		"none is heard":      {nil, []bool{true, true, true}, true, nil}, // the doubt is about the server
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestMembers(t, 3, nil)
			if got := judge(t, s, at(0)); !got.enough {
				t.Fatal("paths that were never tried are not trusted")
			}
			var got judged
			passed := make([]Passage, 3)
			for second := range 9 {
				now := at(float64(second))
				for i := range passed {
					passed[i].Up.Packets += 5
				}
				s.Count(now, passed)
				for _, i := range c.heard {
					passed[i].Down.Packets++
				}
				s.Count(now.Add(20*time.Millisecond), passed)
				got = judge(t, s, now.Add(500*time.Millisecond))
			}
			if !slices.Equal(got.usable, c.usable) || got.enough != c.enough || !slices.Equal(silent(s), c.silent) {
				t.Errorf("usable %v, enough %v, silent %v; want %v, %v, %v", got.usable, got.enough, silent(s), c.usable, c.enough, c.silent)
			}
		})
	}
}

// silent lists the members that were given up.
func silent(s *Members) (all []int) {
	for i, m := range s.group.Members {
		if state, _ := m.Health.State(); state == path.Silent {
			all = append(all, i)
		}
	}
	return all
}

// A path that was cut is used again within two seconds of its return, whatever the session sends, and its trials are few.
func TestPathIsUsedAgain(t *testing.T) {
	loads := map[string]struct {
		burst, pause int // packets, ms
		late         bool
		trials       int // in each second, at most
	}{"idle": {1, 300, false, 2}, "bursty": {30, 300, false, 4}, "at once": {31, 300, true, 4}, "full": {1, 1, false, 4}}
	for name, load := range loads {
		for _, skewed := range []bool{false, true} {
			for _, paths := range []int{2, 3} { // two are too few while one is cut
				for dead := 1200; dead < 12_000; dead += 370 {
					w := newCut(t, paths, 2000, 2000+dead)
					w.late, w.pauses, w.skewed = load.late, load.pause >= int(split.PauseLength/time.Millisecond), skewed
					for ; w.ms < w.restored+2000 && !w.used; w.ms++ {
						if w.ms%load.pause == 0 {
							w.answer()
							w.pause = w.pauses
							for range load.burst {
								w.send()
							}
						}
						if w.ms%int(TendEvery/time.Millisecond) == 0 {
							w.tend(t)
						}
					}
					what := fmt.Sprintf("%s, skewed %v, %d paths, cut for %d ms", name, skewed, paths, dead)
					if !w.used {
						t.Errorf("%s: not used two seconds after its return", what)
					}
					if most := 3 + load.trials*dead/1000; w.trials > most {
						t.Errorf("%s: %d trials, at most %d", what, w.trials, most)
					}
					if w.tested > 1+w.sent/3 && paths > 2 {
						t.Errorf("%s: %d packets of %d in trials", what, w.tested, w.sent)
					}
				}
			}
		}
	}
}

// The server never answers what a healthy path carries by the schedule.
func TestHealthyPathIsNotSilent(t *testing.T) {
	w := newCut(t, 3, math.MaxInt, math.MaxInt)
	w.late, w.pauses, w.drawn = true, true, 2
	doubted := false
	for ; w.ms < 60_000; w.ms++ {
		if w.ms%300 == 0 {
			w.answer()
			w.pause = true
			if w.ms%2100 == 0 {
				w.passed[2].Up.Packets += 3
			}
			for range 31 {
				w.send()
			}
		}
		if w.ms%int(TendEvery/time.Millisecond) == 0 {
			w.tend(t)
			doubted = doubted || w.Doubts(2)
			if slices.Contains(silent(w.Members), 2) {
				t.Fatalf("it is silent after %d ms", w.ms)
			}
		}
	}
	if !doubted {
		t.Error("the path was never in doubt, so that this shows nothing")
	}
}

// cut is a session in virtual time whose last path is cut for a while. The server answers at once by the path that it heard, or,
// where it is late, before the next burst.
type cut struct {
	*Members
	ms, from, restored int
	late, pauses       bool
	skewed             bool // the first path carries nearly all
	passed             []Passage
	judged             judged
	last, heard        int
	drawn              int // paths that the schedule draws
	trial              Trial
	pause              bool // before the next packet
	takes              bool // the trial takes packets of its burst
	trials             int
	tested, sent       int  // packets of trials, and all
	used               bool // the schedule draws the path again
}

func newCut(t *testing.T, paths, from, restored int) *cut {
	w := &cut{Members: newTestMembers(t, paths, func(o *Options) { o.MinPaths = 2 }), from: from, restored: restored, passed: make([]Passage, paths), drawn: paths, trial: Trial{Member: -1}}
	for i := range w.hops {
		w.hops[i] = Hop{Index: i + 1}
	}
	return w
}

// alive reports whether a path carries packets.
func (w *cut) alive(i int) bool {
	return i != len(w.passed)-1 || w.ms < w.from || w.ms >= w.restored
}

// answer sends what a late server sends in a burst.
func (w *cut) answer() {
	if w.late && w.alive(w.heard) {
		w.passed[w.heard].Down.Packets += 70
	}
}

// send sends a packet of the session by the trial's path, or by the next usable one.
func (w *cut) send() {
	begins := w.pause
	w.pause = false
	if w.takes && begins {
		w.trial, w.takes = Trial{Member: -1}, false
	}
	to, tried := w.trial.Member, w.takes
	switch {
	case tried:
	case to >= 0 && (begins || !w.trial.Burst):
		tried = true
		w.trials++
		if w.takes = w.trial.Burst; !w.takes {
			w.trial.Member = -1
		}
	case !w.judged.enough:
		return
	default:
		to = (w.last + 1) % w.drawn
		if w.skewed {
			if to = 0; w.sent%10 == 0 {
				to = w.sent / 10 % w.drawn
			}
		}
		for ; !w.judged.usable[to]; to = (to + 1) % w.drawn {
		}
		w.last = to
	}
	w.sent++
	if tried {
		w.tested++
	}
	w.passed[to].Up.Packets++
	if w.alive(to) {
		w.heard = to
		if !w.late {
			w.passed[to].Down.Packets++
		}
	}
}

func (w *cut) tend(t *testing.T) {
	now := time.Unix(1000, 0).Add(time.Duration(w.ms) * time.Millisecond)
	w.Count(now, slices.Clone(w.passed))
	w.judged = judge(t, w.Members, now)
	w.used = w.ms >= w.restored && w.judged.usable[len(w.passed)-1]
	if w.trial.Member < 0 || !w.Doubts(w.trial.Member) {
		w.trial, w.takes = w.NextTrial(now, w.pauses), false
	}
}

func TestDegradePermitsFewerPaths(t *testing.T) {
	for _, degrade := range []bool{false, true} {
		s := newTestMembers(t, 3, func(o *Options) { o.MinPaths, o.Degrade = 3, degrade })
		s.group.Members[0].Health.Fail("no device")
		if got := judge(t, s, time.Unix(1000, 0)); got.enough != degrade {
			t.Errorf("with --degrade %v two of three are enough: %v", degrade, got.enough)
		}
	}
}

// Status says "running" no sooner than the kernel lets packets through, and Ready is called then, and once.
func TestStatusSaysWhatWasPermitted(t *testing.T) {
	ready := 0
	s := newTestMembers(t, 2, func(o *Options) { o.Ready = func(string) { ready++ } })
	now := time.Unix(1000, 0)
	want := func(state string, times int, why ...string) {
		t.Helper()
		st := s.Status(make([]split.Counted, 2))
		if st.State != state || ready != times {
			t.Errorf("%s (%s), ready %d times; want %s, %d", st.State, st.Why, ready, state, times)
		}
		for _, part := range why {
			if !strings.Contains(st.Why, part) {
				t.Errorf("why is %q, without %q", st.Why, part)
			}
		}
	}
	want("starting", 0)
	refused := errors.New("the kernel refuses")
	if err := s.Judge(now, func([]bool, bool) error { return refused }); err != refused {
		t.Errorf("judge says %v", err)
	}
	want("starting", 0)
	judge(t, s, now)
	want("running", 1)
	s.group.Members[1].Health.Fail("no device")
	judge(t, s, now)
	want("stopped", 1, "1 of 2 required paths healthy", "b is down (no device)")
	s.group.Members[1].Health.Restore()
	judge(t, s, now)
	want("running", 1)
}

func TestMembersRefuseWhatTheyCannotDo(t *testing.T) {
	server := netip.MustParseAddrPort("192.0.2.1:51820")
	via := []path.Spec{{Name: "a", Kind: "if", Arg: "absent-a"}, {Name: "b", Kind: "if", Arg: "absent-b"}}
	for why, o := range map[string]Options{
		"no path was given":              {Server: server},
		"2 paths were given":             {Server: server, Options: split.Options{Via: via, MinPaths: 3}},
		"only global unicast addresses":  {Server: netip.MustParseAddrPort("127.0.0.1:9"), Options: split.Options{Via: via}},
		"neither --settle nor --at-gaps": {Server: server, Options: split.Options{Via: via, AtGaps: time.Second}},
		"it takes only if and src":       {Server: server, Options: split.Options{Via: []path.Spec{{Name: "s", Kind: "socks5", Arg: "127.0.0.1:1"}}}},
		"not a host and a port":          {Options: split.Options{Via: via, To: "192.0.2.1"}},
	} {
		if _, err := NewMembers(context.Background(), "kernel", o, 0); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v", why, err)
		}
	}
}
