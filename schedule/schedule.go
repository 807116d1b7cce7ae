// Package schedule says which path the next unit takes.
//
// It is pure: no I/O, no clock of its own, and with a seed the same draws each time.
package schedule

import "time"

// Config is a schedule as a person asks for it.
type Config struct {
	// Name is "round-robin", "uniform" or "weighted".
	Name string
	// Every is the unit.
	Every Every
	// Alpha is the concentration of the Dirichlet distribution that weighted draws its weights from; 0 means 1.
	Alpha float64
	// Weights are fixed weights for weighted, one a path, instead of drawn ones; nil to draw.
	Weights []float64
	// Seed makes the draws repeatable where it is not nil. Without it they come from crypto/rand.
	Seed *uint64
}

// Every is the unit of a schedule: so many packets, or so long. The zero value never switches.
type Every struct {
	Packets int
	Period  time.Duration
}
