// Package polltest waits, in tests, for a state that another goroutine, process or the kernel brings about.
//
// Do not import it outside tests.
package polltest

import (
	"errors"
	"testing"
	"time"
)

// Patience is how long a test waits for a state. It is for machines that are busy: a state that is there ends the wait.
const Patience = time.Minute

// Until asks for a state again and again until it gives nil. After [Patience] it fails the test with the last error.
func Until(t testing.TB, state func() error) {
	t.Helper()
	for end := time.Now().Add(Patience); ; time.Sleep(time.Millisecond) {
		err := state()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("for %v: %v", Patience, err)
		}
	}
}

// Await is [Until] for a state that is there or not, and needs no more words than what it is.
func Await(t testing.TB, what string, there func() bool) {
	t.Helper()
	Until(t, func() error {
		if !there() {
			return errors.New("not yet: " + what)
		}
		return nil
	})
}
