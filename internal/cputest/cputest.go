// Package cputest reports processor time in benchmarks: on a busy machine it says more than the clock. Do not import it outside tests.
package cputest

import "testing"

// Report starts to measure. The function that it returns reports the nanoseconds of this process since then for each of n things,
// such as "cpu-ns/B" for the unit "B".
func Report(b *testing.B, unit string) (end func(n int)) {
	before := processorTime()
	return func(n int) { b.ReportMetric(float64(processorTime()-before)/float64(n), "cpu-ns/"+unit) }
}
