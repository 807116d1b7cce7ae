package schedule

import (
	"testing"
	"time"
)

// use is one call of Take at a time in milliseconds, and what it must give. due is what Due says afterwards.
type use struct {
	ms, offered  int
	path, packet int
	began, due   bool
}

func TestUnitIsDueWhenItsPacketsOrItsTimeAreUsedUp(t *testing.T) {
	packets, period := Every{Packets: 5}, Every{Period: 100 * time.Millisecond}
	for name, c := range map[string]struct {
		every  Every
		settle time.Duration
		uses   []use
	}{
		"packets":               {packets, 0, []use{{0, 3, 0, 3, true, false}, {1, 9, 0, 2, false, true}, {1, 7, 1, 5, true, true}}},
		"a time":                {period, 0, []use{{0, 3, 0, 3, true, false}, {99, 3, 0, 3, false, false}, {100, 3, 1, 3, true, false}}},
		"never":                 {Every{}, 0, []use{{0, 3, 0, 3, true, false}, {3_600_000, 3, 0, 3, false, false}}},
		"never, settled or not": {Every{}, time.Second, []use{{0, 3, 0, 3, true, false}, {2000, 3, 0, 3, false, false}}},
		"packets, until settled": {packets, time.Second, []use{{0, 9, 0, 5, true, false}, {500, 9, 0, 9, false, false},
			{999, 1, 0, 1, false, false}, {1000, 9, 1, 5, true, true}, {1000, 9, 2, 5, true, true}}},
		"packets left when it settled": {packets, time.Second, []use{{0, 2, 0, 2, true, false}, {1500, 9, 0, 3, false, true}, {1500, 1, 1, 1, true, false}}},
		"a time, until settled":        {period, time.Second, []use{{0, 3, 0, 3, true, false}, {999, 3, 0, 3, false, false}, {1000, 3, 1, 3, true, false}, {1100, 3, 2, 3, true, false}}},
		"a time longer than settling":  {period, 10 * time.Millisecond, []use{{0, 3, 0, 3, true, false}, {99, 3, 0, 3, false, false}, {100, 3, 1, 3, true, false}}},
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Unix(1000, 0)
			s := mustNew(t, Config{Name: "round-robin", Every: c.every, Settle: c.settle}, 3)
			if !s.Due(start) {
				t.Error("no unit runs, and none is due")
			}
			for i, u := range c.uses {
				now := start.Add(time.Duration(u.ms) * time.Millisecond)
				path, n, began := s.Take(now, all(3), u.offered)
				if got := (use{u.ms, u.offered, path, n, began, s.Due(now)}); got != u {
					t.Errorf("use %d: %+v, want %+v", i, got, u)
				}
			}
			s.Cut()
			if !s.Due(start) {
				t.Error("the unit was cut, and none is due")
			}
		})
	}
}

// A path that goes away ends its unit even before the session has settled.
func TestSettlingSessionLeavesADeadPath(t *testing.T) {
	s := mustNew(t, Config{Name: "round-robin", Every: Every{Packets: 5}, Settle: time.Minute}, 2)
	now := time.Unix(1000, 0)
	s.Take(now, all(2), 1)
	if path, n, began := s.Take(now, []bool{false, true}, 9); path != 1 || n != 5 || !began {
		t.Errorf("path %d, %d packets, began %v; want path 1, 5, true", path, n, began)
	}
}
