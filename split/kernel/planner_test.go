package kernel

import (
	"slices"
	"testing"
	"time"

	"heddle/schedule"
)

func plan(t *testing.T, c schedule.Config, members int) (*planner, map[uint64]int) {
	t.Helper()
	written := map[uint64]int{}
	p, err := newPlanner(c, members, usualPatience, func(unit uint64, member int) { written[unit] = member })
	if err != nil {
		t.Fatal(err)
	}
	return p, written
}

func TestPlanHasEachUnitInTurn(t *testing.T) {
	for _, every := range []schedule.Every{{Period: time.Millisecond}, {Period: time.Second}, {Packets: 3}} {
		p, written := plan(t, schedule.Config{Name: "round-robin", Every: every}, 3)
		usable := []bool{true, true, true}
		for unit := uint64(0); unit < 5000; unit += 500 {
			p.fill(unit, usable)
			for u := unit; u < unit+p.ahead; u++ {
				if member, ok := written[u]; !ok || member != int(u%3) {
					t.Fatalf("%v: unit %d goes by %d (%v)", every, u, member, ok)
				}
			}
		}
	}
}

// A path that fails is in no unit from the running one on; the units before stay as they were.
func TestPlanIsDrawnAgain(t *testing.T) {
	p, written := plan(t, schedule.Config{Name: "uniform", Every: schedule.Every{Period: time.Millisecond}}, 3)
	p.fill(0, []bool{true, true, true})
	p.fill(100, []bool{true, false, true})
	for u := uint64(100); u < 100+p.ahead; u++ {
		if written[u] == 1 {
			t.Fatalf("unit %d goes by a path that failed", u)
		}
	}
	running := written[200]
	p.fill(200, []bool{true, true, true})
	if written[200] != running {
		t.Error("the running unit changed its path though that is healthy")
	}
	back := false
	for u := uint64(201); u < 200+p.ahead; u++ {
		back = back || written[u] == 1
	}
	if !back {
		t.Error("a path that came back is in no unit")
	}
}

func TestPlanWithoutUnits(t *testing.T) {
	p, written := plan(t, schedule.Config{Name: "uniform"}, 2)
	p.fill(0, []bool{true, true})
	first := written[0]
	for range 100 {
		p.fill(0, []bool{true, true})
	}
	if written[0] != first || len(written) != 1 {
		t.Errorf("it switches: %v", written)
	}
	usable := []bool{true, true}
	usable[first] = false
	p.fill(0, usable)
	if written[0] == first {
		t.Error("it stays on a path that failed")
	}
}

func TestPlanCountsSwitches(t *testing.T) {
	p, written := plan(t, schedule.Config{Name: "uniform", Every: schedule.Every{Packets: 10}}, 3)
	usable := []bool{true, true, true}
	for unit := uint64(0); unit <= 300; unit += 7 {
		p.fill(unit, usable)
	}
	want, last := make([]uint64, 3), -1
	for u := uint64(0); u <= 294; u++ {
		if member := written[u]; member != last {
			want[member]++
			last = member
		}
	}
	if !slices.Equal(p.switches, want) {
		t.Errorf("switches %v, want %v", p.switches, want)
	}
}

func TestNothingUsable(t *testing.T) {
	p, written := plan(t, schedule.Config{Name: "weighted", Every: schedule.Every{Period: time.Second}}, 2)
	p.fill(5, []bool{false, false})
	if len(written) != 0 {
		t.Errorf("%v", written)
	}
	p.fill(6, []bool{false, true})
	if member, ok := written[6]; !ok || member != 1 {
		t.Errorf("%v", written)
	}
}
