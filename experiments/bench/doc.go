// Package bench repeats the papers' measurements in worlds of package lab, with unmodified peers and the heddle binary.
//
// All benches return a [Report] in the same JSON format. Runs are interleaved in rounds, and results are ratios to the
// baseline of the same round, since absolute speed depends on the machine. Runs with late emulated links are repeated.
//
// Do not use it to compare numbers from two machines.
package bench
