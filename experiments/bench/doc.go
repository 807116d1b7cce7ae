// Package bench repeats the papers' measurements in worlds of package lab, with unmodified peers and the heddle
// binary as it is.
//
// Every bench gives a [Report], whose JSON is the same for all: runs are interleaved in rounds, and what counts is
// the ratio to the baseline of the same round, since absolute speed is the machine's. A run in which the emulated
// links were late is no run: it is repeated.
//
// Do not use this package to compare numbers of two machines.
package bench
