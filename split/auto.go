package split

import (
	"cmp"
	"slices"
	"time"

	"heddle/schedule"
)

// The period that "auto" chooses: what switches cost is at most this share of the time. Periods shorter than
// [schedule.AutoPeriod] hardly add privacy, and longer ones than autoLongest show a network too much.
const (
	autoShare   = 0.08
	autoLongest = time.Second
	autoDrain   = 250 * time.Millisecond
	autoReorder = 100 * time.Millisecond // as long as a line's queue takes to drain
	// A switch costs one round trip without traffic, and what a server loses as it begins slowly. Before it is measured, and
	// without measurements, it counts as costFirst round trips, and never as more than costMost: a path may delay what it carries.
	costFirst = 1.4
	costMost  = 4
	// costsKept is of how many visits the median counts.
	costsKept = 9
)

// auto chooses the length of units by what switches cost. The session's lock guards it.
type auto struct {
	rtt    time.Duration // the shortest round trip seen; 0 before the server followed
	follow follow
	costs  []time.Duration
}

// follow is what arrived since the server was led to another path.
type follow struct {
	began time.Time // zero if it was not
	down  uint64    // bytes of the session before
	from  *member   // the path before, and its bytes before
	left  uint64
	speed float64 // bytes a second at which that path delivered what was under way; 0 before the server followed
}

// beginVisit notes a switch from the current path, to which the server must follow. s.mu is held.
func (s *Session) beginVisit(now time.Time, down uint64) {
	from := s.members[s.current]
	s.auto.follow = follow{began: now, down: down, from: from, left: from.down.bytes.Load()}
}

// endVisit chooses the period anew at a switch. down is what has arrived so far; late means that the server did not follow to the
// path before its visit ended. s.mu is held.
func (s *Session) endVisit(down uint64, late bool) {
	v := s.auto.follow
	s.auto.follow = follow{}
	switch {
	case !s.o.Schedule.Every.Auto:
	case late:
		s.sched.Lengthen(min(s.sched.Period()*3/2, autoLongest))
	case v.speed > 0:
		whole := time.Duration(float64(down-v.down) / v.speed * float64(time.Second))
		cost := min(max(s.now().Sub(v.began)-whole, s.auto.rtt), costMost*s.auto.rtt)
		s.auto.costs = append(s.auto.costs[max(0, len(s.auto.costs)-costsKept+1):], cost)
		s.lengthen()
	}
}

// followedAfter notes that the server followed to another path so long after the switch. s.mu is held.
func (s *Session) followedAfter(took time.Duration) {
	if !s.o.Schedule.Every.Auto {
		return
	}
	rtt := cmp.Or(s.nearest(), took) // took has the server's queue too
	s.auto.rtt = min(rtt, cmp.Or(s.auto.rtt, rtt))
	v := &s.auto.follow
	if last, left := v.from.Health.LastHeard(), v.from.down.bytes.Load()-v.left; left >= drainLeast/2 && last.After(v.began) {
		v.speed = float64(left) / last.Sub(v.began).Seconds()
	}
	if len(s.auto.costs) == 0 {
		s.lengthen()
	}
}

// nearest returns the shortest known round-trip time of the session's paths, or 0.
func (s *Session) nearest() (rtt time.Duration) {
	for _, m := range s.members {
		if one := m.Health.RTT(); one > 0 {
			rtt = min(one, cmp.Or(rtt, one))
		}
	}
	return rtt
}

// lengthen sets the period by the median of what switches cost. s.mu is held.
func (s *Session) lengthen() {
	cost := costFirst * float64(s.auto.rtt)
	if n := len(s.auto.costs); n > 0 {
		cost = float64(slices.Sorted(slices.Values(s.auto.costs))[n/2])
	}
	period := max(time.Duration(cost*s.sched.Changes()/autoShare), validation*s.auto.rtt).Round(10 * time.Millisecond)
	s.sched.Lengthen(min(max(period, schedule.AutoPeriod), autoLongest))
}
