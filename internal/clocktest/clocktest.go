// Package clocktest makes times as they are after somebody has set the clock. Do not import it outside tests.
package clocktest

import (
	"testing"
	"time"
	"unsafe"
)

// Jump returns a time as if the clock had been set by so much, in whole seconds: what it shows is another time, and the time that has passed is the same.
// The time needs a monotonic reading, which those within testing/synctest lack.
func Jump(t testing.TB, at time.Time, by time.Duration) time.Time {
	t.Helper()
	jumped := at
	// The first word of a time has the seconds that the clock shows above its nanoseconds, if it has a monotonic reading.
	*(*uint64)(unsafe.Pointer(&jumped)) += uint64(by/time.Second) << 30
	if jumped.Sub(at) != 0 || jumped.Round(0).Sub(at.Round(0)) != by {
		t.Fatalf("%v cannot become one of a clock that was set by %v", at, by)
	}
	return jumped
}
