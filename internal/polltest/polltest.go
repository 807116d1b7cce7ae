// Package polltest waits in tests for a state of a goroutine, a process or the kernel. Do not import it outside tests.
package polltest

import (
	"errors"
	"testing"
	"time"
)

// Patience is the time limit of a wait. It allows for busy machines.
const Patience = 2 * time.Minute

// Until calls state until it returns nil. After [Patience] it fails the test with the last error.
func Until(t testing.TB, state func() error) {
	t.Helper()
	for end := time.Now().Add(Patience); ; {
		began := time.Now()
		err := state()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("for %v: %v", Patience, err)
		}
		time.Sleep(pause(time.Since(began)))
	}
}

// pause is the time between two looks of which one took so long. A look may run a program, and what it waits for needs the processor.
func pause(look time.Duration) time.Duration {
	return min(max(9*look, time.Millisecond), time.Second)
}

// Await is [Until] for a state that needs no error beyond its name.
func Await(t testing.TB, what string, there func() bool) {
	t.Helper()
	Until(t, func() error {
		if !there() {
			return errors.New("not yet: " + what)
		}
		return nil
	})
}

// tries is how often [Again] measures.
const tries = 5

// Again repeats a measurement that a busy machine may spoil, until it returns nil. It fails the test with the last of five errors. try
// counts from 0, so that a measurement may double what it waits for.
func Again(t testing.TB, measure func(try int) error) {
	t.Helper()
	for try := 0; ; try++ {
		err := measure(try)
		if err == nil {
			return
		}
		if try+1 == tries {
			t.Fatalf("%d times, at last: %v", tries, err)
		}
		t.Logf("%v; again", err)
	}
}
