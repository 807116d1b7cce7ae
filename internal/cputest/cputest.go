// Package cputest reports the processor time of benchmarks, which says more than the clock on a busy machine, and saves that of tests. Do not
// import it outside tests.
package cputest

import (
	"flag"
	"os"
	"runtime"
	"testing"
)

// Simulated is the TestMain of a package whose tests simulate networks in bubbles of synctest. The goroutines of a bubble wait for each other, and
// need up to half as much processor time again if they take turns on several processors. Benchmarks have all.
func Simulated(m *testing.M) {
	flag.Parse()
	if flag.Lookup("test.bench").Value.String() == "" {
		runtime.GOMAXPROCS(1)
	}
	os.Exit(m.Run())
}

// Report starts to measure. The function that it returns reports the nanoseconds of this process since then for each of n things,
// such as "cpu-ns/B" for the unit "B".
func Report(b *testing.B, unit string) (end func(n int)) {
	before := processorTime()
	return func(n int) { b.ReportMetric(float64(processorTime()-before)/float64(n), "cpu-ns/"+unit) }
}
