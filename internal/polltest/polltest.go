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

// late is the lateness that excuses a failed measurement. Heddle doubts a path after five times as long without an answer, which passes several
// goroutines or processes on its way. On an idle machine a timer is late by a few milliseconds.
const late = 100 * time.Millisecond

// Again repeats a measurement that a busy machine has spoiled, until it returns nil. It fails the test with the last of five errors, or with an
// error of a measurement during which this process was not late. try counts from 0, so that a measurement may double what it waits for.
func Again(t testing.TB, measure func(try int) error) {
	t.Helper()
	AgainAfter(t, late, measure)
}

// AgainAfter is [Again] for a measurement that a shorter lateness spoils.
func AgainAfter(t testing.TB, late time.Duration, measure func(try int) error) {
	t.Helper()
	for try := 0; ; try++ {
		var err error
		worst := lateness(func() { err = measure(try) })
		switch {
		case err == nil:
			return
		case worst < late:
			t.Fatalf("%v; the machine was not busy: timers were late by %v at most", err, worst)
		case try+1 == tries:
			t.Fatalf("%d times, at last: %v; timers were late by up to %v", tries, err, worst)
		}
		t.Logf("%v; timers were late by up to %v; again", err, worst)
	}
}

// nap is short beside late, and long beside the processor time that it costs to wake up.
const nap = 5 * time.Millisecond

// sleep may be late in a test.
var sleep = time.Sleep

// lateness calls f and returns the longest time by which a timer of this process was late meanwhile.
func lateness(f func()) (worst time.Duration) {
	ended, found := make(chan struct{}), make(chan time.Duration)
	go func() {
		worst := time.Duration(0)
		defer func() { found <- worst }()
		for {
			began := time.Now()
			sleep(nap)
			worst = max(worst, time.Since(began)-nap)
			select {
			case <-ended:
				return
			default:
			}
		}
	}()
	defer func() { // also where f ends the test
		close(ended)
		worst = <-found
	}()
	f()
	return
}
