// Package schedule decides which path takes the next unit. It is deterministic with a seed, and has no I/O and no clock. The
// caller says which paths are usable. Do not share a [Schedule] between goroutines.
package schedule

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"heddle/internal/errhint"
)

// Config configures a schedule.
type Config struct {
	Name    string        // "round-robin", "uniform" or "weighted"
	Every   Every         // the length of a unit
	Settle  time.Duration // minimum length of the first unit
	Alpha   float64       // concentration of the Dirichlet distribution of the weights of weighted; 0 means 1
	Weights []float64     // fixed weights for weighted, one per path; nil draws them
	Seed    *uint64       // makes the draws repeatable; nil draws from crypto/rand
}

func Names() []string { return []string{"round-robin", "uniform", "weighted"} }

// Schedule picks paths for one session. Paths are numbered from 0.
type Schedule struct {
	every   Every
	settle  time.Duration
	weights []float64
	cyclic  bool // round-robin
	next    func(usable []bool) int

	current int       // path of the running unit; -1 before the first unit and after a cut
	last    int       // path of the last unit; -1 before the first
	left    int       // packets left, for units of packets
	end     time.Time // end of the unit, for units of time
	settled time.Time // earliest end of the first unit
	whole   bool      // the next unit begins a new grid
}

// New returns the schedule of one session over n paths. "weighted" without fixed weights draws them from Dirichlet(alpha,
// ..., alpha) (CoMPS, section 4.2.1).
func New(c Config, n int) (*Schedule, error) {
	if n < 1 {
		return nil, fmt.Errorf("schedule: no paths")
	}
	rng := newRand(c.Seed)
	s := &Schedule{every: c.Every, settle: c.Settle, current: -1, last: -1, weights: slices.Repeat([]float64{1 / float64(n)}, n)}
	switch c.Name {
	case "round-robin":
		s.cyclic, s.next = n > 1, s.roundRobin
	case "uniform":
		s.next = s.draw(rng)
	case "weighted", "":
		if err := s.setWeights(c, rng); err != nil {
			return nil, err
		}
		s.next = s.draw(rng)
	default:
		return nil, &errhint.Error{What: fmt.Sprintf("no schedule is called %q", c.Name), Hint: "schedules: " + strings.Join(Names(), ", ")}
	}
	return s, nil
}

func (s *Schedule) setWeights(c Config, rng *rand.Rand) error {
	n := len(s.weights)
	if c.Weights == nil {
		alpha := cmp.Or(c.Alpha, 1)
		if alpha < 0 || math.IsNaN(alpha) || math.IsInf(alpha, 0) {
			return fmt.Errorf("schedule: alpha is %v, it must be above 0", alpha)
		}
		s.weights = dirichlet(rng, alpha, n)
		return nil
	}
	if len(c.Weights) != n {
		return fmt.Errorf("schedule: %d weights for %d paths", len(c.Weights), n)
	}
	sum := 0.0
	for _, w := range c.Weights {
		if w < 0 || math.IsNaN(w) || math.IsInf(w, 0) {
			return fmt.Errorf("schedule: weight %v, it must be 0 or more", w)
		}
		sum += w
	}
	if sum == 0 {
		return fmt.Errorf("schedule: all weights are 0")
	}
	for i, w := range c.Weights {
		s.weights[i] = w / sum
	}
	return nil
}

// Weights returns the probability of each path.
func (s *Schedule) Weights() []float64 { return slices.Clone(s.weights) }

// Changes returns the probability that a unit takes another path than the one before it.
func (s *Schedule) Changes() float64 {
	if s.cyclic {
		return 1
	}
	same := 0.0
	for _, w := range s.weights {
		same += w * w
	}
	return 1 - same
}

// Lengthen sets the length of the units to come, for units of time. The next unit has all of it.
func (s *Schedule) Lengthen(period time.Duration) {
	s.whole = s.whole || period != s.every.Period
	s.every.Period = period
}

// Period returns the length of a unit of time, or 0.
func (s *Schedule) Period() time.Duration { return s.every.Period }

// Turn starts a new unit if the running one is over or its path is unusable, and takes no packet from it. It returns the
// path of the running unit, -1 if none is usable, and whether a unit began.
func (s *Schedule) Turn(now time.Time, usable []bool) (path int, began bool) {
	if s.current >= 0 && usable[s.current] && !s.Due(now) {
		return s.current, false
	}
	next := s.next(usable)
	if next < 0 {
		return -1, false
	}
	s.current, s.last = next, next
	s.begin(now)
	return next, true
}

// Take returns the path of the next packets and how many of the max offered it takes; began is as for [Schedule.Turn].
func (s *Schedule) Take(now time.Time, usable []bool, max int) (path, n int, began bool) {
	path, began = s.Turn(now, usable)
	if path < 0 || s.every.Packets == 0 {
		return path, max, began
	}
	if s.left <= 0 { // the first unit continues until the session has settled
		return path, max, began
	}
	n = min(max, s.left)
	s.left -= n
	return path, n, began
}

// Cut ends the running unit: the next packet starts a new one.
func (s *Schedule) Cut() { s.current = -1 }

// Due reports whether the running unit is over.
func (s *Schedule) Due(now time.Time) bool {
	switch {
	case s.current < 0:
		return true
	case now.Before(s.settled):
		return false
	case s.every.Packets > 0:
		return s.left == 0
	case s.every.Period > 0:
		return !now.Before(s.end)
	}
	return false
}

// End returns when the running unit ends, for units of time, or else the zero time.
func (s *Schedule) End() time.Time { return s.end }

func (s *Schedule) begin(now time.Time) {
	s.left = s.every.Packets
	if s.settled.IsZero() {
		s.settled = now.Add(s.settle)
	}
	if s.every.Period == 0 {
		return
	}
	if s.end.IsZero() || s.whole || now.Before(s.end) {
		s.end, s.whole = now.Add(s.every.Period), false
		return
	}
	// Units stay on one grid, so that a late packet does not delay all later switches.
	passed := now.Sub(s.end)/s.every.Period + 1
	s.end = s.end.Add(passed * s.every.Period)
}

func (s *Schedule) roundRobin(usable []bool) int {
	n := len(usable)
	for step := 1; step <= n; step++ {
		if i := (s.last + step + n) % n; usable[i] {
			return i
		}
	}
	return -1
}

func (s *Schedule) draw(rng *rand.Rand) func([]bool) int {
	return func(usable []bool) int { return drawOne(rng, usable, s.weights) }
}

// drawOne draws a usable path by weight, or any usable one if all have weight 0.
func drawOne(rng *rand.Rand, usable []bool, weights []float64) int {
	sum, last := 0.0, -1
	for i, ok := range usable {
		if ok {
			sum += weights[i]
			last = i
		}
	}
	switch {
	case last < 0:
		return -1
	case sum == 0:
		return drawOne(rng, usable, slices.Repeat([]float64{1}, len(usable)))
	}
	x := rng.Float64() * sum
	for i, ok := range usable {
		if !ok {
			continue
		}
		if x < weights[i] {
			return i
		}
		x -= weights[i]
	}
	return last
}
