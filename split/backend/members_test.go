package backend

import (
	"context"
	"errors"
	"log/slog"
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
	// Packets, ms, and the trials in each second
	loads := map[string]struct{ burst, pause, trials int }{"idle": {1, 300, 2}, "bursty": {30, 300, 4}, "full": {1, 1, 4}}
	for name, load := range loads {
		for _, paths := range []int{2, 3} { // two are too few while one is cut
			for dead := 1200; dead < 12_000; dead += 370 {
				w := newCut(t, paths, 2000, 2000+dead)
				for ; w.ms < w.restored+2000 && !w.used; w.ms++ {
					if w.ms%load.pause == 0 {
						for range load.burst {
							w.send()
						}
					}
					if w.ms%int(TendEvery/time.Millisecond) == 0 {
						w.tend(t)
					}
				}
				if !w.used {
					t.Errorf("%s, %d paths, cut for %d ms: not used two seconds after its return", name, paths, dead)
				}
				if most := 3 + load.trials*dead/1000; w.trials > most {
					t.Errorf("%s, %d paths, cut for %d ms: %d trials, at most %d", name, paths, dead, w.trials, most)
				}
				if w.trials > 1+w.sent/4 && paths > 2 {
					t.Errorf("%s, cut for %d ms: %d trials in %d packets", name, dead, w.trials, w.sent)
				}
			}
		}
	}
}

// cut is a session in virtual time whose last path is cut for a while. The server answers at once by the path that it heard.
type cut struct {
	*Members
	ms, from, restored int
	passed             []Passage
	judged             judged
	last, trial        int
	trials, sent       int
	used               bool // the path carries what is no trial again
}

func newCut(t *testing.T, paths, from, restored int) *cut {
	w := &cut{Members: newTestMembers(t, paths, func(o *Options) { o.MinPaths = 2 }), from: from, restored: restored, passed: make([]Passage, paths), trial: -1}
	for i := range w.hops {
		w.hops[i] = Hop{Index: i + 1}
	}
	return w
}

// send sends a packet of the session by the trial's path, or by the next usable one.
func (w *cut) send() {
	to := w.trial
	switch {
	case to >= 0:
		w.trial = -1
		w.trials++
	case !w.judged.enough:
		return
	default:
		for to = (w.last + 1) % len(w.passed); !w.judged.usable[to]; to = (to + 1) % len(w.passed) {
		}
		w.last = to
		w.used = w.used || to == len(w.passed)-1 && w.ms >= w.restored
	}
	w.sent++
	w.passed[to].Up.Packets++
	if to != len(w.passed)-1 || w.ms < w.from || w.ms >= w.restored {
		w.passed[to].Down.Packets++
	}
}

func (w *cut) tend(t *testing.T) {
	now := time.Unix(1000, 0).Add(time.Duration(w.ms) * time.Millisecond)
	w.Count(now, slices.Clone(w.passed))
	w.judged = judge(t, w.Members, now)
	if trial := w.NextTrial(now); trial >= 0 {
		w.trial = trial
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
