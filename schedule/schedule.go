// Package schedule says which path the next unit takes.
//
// It is pure: no I/O, no clock of its own, and with a seed the same draws each time. It knows nothing of health: the
// caller says which paths may be used. Do not share one [Schedule] between goroutines.
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

// Config is a schedule as a person asks for it.
type Config struct {
	// Name is "round-robin", "uniform" or "weighted".
	Name string
	// Every is the unit.
	Every Every
	// Settle is how long the first unit lasts at least.
	Settle time.Duration
	// Alpha is the concentration of the Dirichlet distribution that weighted draws its weights from; 0 means 1.
	Alpha float64
	// Weights are fixed weights for weighted, one a path, instead of drawn ones; nil to draw.
	Weights []float64
	// Seed makes the draws repeatable where it is not nil. Without it they come from crypto/rand.
	Seed *uint64
}

// Names lists the schedules.
func Names() []string { return []string{"round-robin", "uniform", "weighted"} }

// Schedule picks paths for one session. The paths are numbered from 0.
type Schedule struct {
	every   Every
	settle  time.Duration
	weights []float64
	next    func(usable []bool) int

	current int       // path of the running unit, -1 before the first and after a cut
	last    int       // path of the last unit, -1 before the first
	left    int       // packets left in the unit, where units are packets
	end     time.Time // end of the unit, where units are time
	settled time.Time // when the first unit may end
}

// New makes the schedule of one session over n paths. For "weighted" without fixed weights it draws new ones, from
// Dirichlet(alpha, ..., alpha) (CoMPS, section 4.2.1).
func New(c Config, n int) (*Schedule, error) {
	if n < 1 {
		return nil, fmt.Errorf("schedule: no paths")
	}
	rng := newRand(c.Seed)
	s := &Schedule{every: c.Every, settle: c.Settle, current: -1, last: -1, weights: slices.Repeat([]float64{1 / float64(n)}, n)}
	switch c.Name {
	case "round-robin":
		s.next = s.roundRobin
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

// Weights gives the probability of each path, in the order of the paths.
func (s *Schedule) Weights() []float64 { return slices.Clone(s.weights) }

// Turn starts the next unit if the running one is over or its path is not usable any more, without taking a packet
// from it. It gives the path of the running unit and whether a unit began; path -1 where none is usable.
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

// Take gives the path for the next packets and for how many of the max offered it holds; began is as Turn says.
func (s *Schedule) Take(now time.Time, usable []bool, max int) (path, n int, began bool) {
	path, began = s.Turn(now, usable)
	if path < 0 || s.every.Packets == 0 {
		return path, max, began
	}
	if s.left <= 0 { // the first unit goes on until the session has settled
		return path, max, began
	}
	n = min(max, s.left)
	s.left -= n
	return path, n, began
}

// Cut ends the running unit, so that the next packet starts a new one.
func (s *Schedule) Cut() { s.current = -1 }

// Due reports whether the running unit is over, so that the next packet starts a new one.
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

// End is when the running unit ends, where units are time; the zero time otherwise.
func (s *Schedule) End() time.Time { return s.end }

func (s *Schedule) begin(now time.Time) {
	s.left = s.every.Packets
	if s.settled.IsZero() {
		s.settled = now.Add(s.settle)
	}
	if s.every.Period == 0 {
		return
	}
	if s.end.IsZero() || now.Before(s.end) {
		s.end = now.Add(s.every.Period)
		return
	}
	// Units stay on one grid, so that a late packet does not shift all later switches.
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

// drawOne draws a usable path by its weight, or any usable one if all of them have weight 0.
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
