package polltest

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// failure takes the place of a test that fails.
type failure struct {
	testing.TB
	said string
}

func (f *failure) Helper() {}

func (f *failure) Logf(string, ...any) {}

func (f *failure) Fatalf(format string, args ...any) {
	f.said = fmt.Sprintf(format, args...)
	panic(f)
}

// failed returns what a test said that failed.
func failed(test func(testing.TB)) string {
	var f failure
	func() {
		defer func() { recover() }()
		test(&f)
	}()
	return f.said
}

func TestUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		Until(t, func() error {
			if asked++; asked < 3 {
				return errors.New("not yet")
			}
			return nil
		})
		if asked != 3 {
			t.Errorf("asked %d times", asked)
		}
		if said := failed(func(t testing.TB) { Await(t, "never", func() bool { return false }) }); said != fmt.Sprintf("for %v: not yet: never", Patience) {
			t.Errorf("it said %q", said)
		}
	})
}

// asleep makes timers late while a test runs.
func asleep(t *testing.T, by time.Duration) {
	t.Cleanup(func() { sleep = time.Sleep })
	sleep = func(d time.Duration) { time.Sleep(d + by) }
}

// A measurement is repeated as long as the machine is late, and at most five times.
func TestAgain(t *testing.T) {
	asleep(t, late)
	synctest.Test(t, func(t *testing.T) {
		measured := 0
		Again(t, func(try int) error {
			if measured++; try != measured-1 || try < 4 {
				return errors.New("late")
			}
			return nil
		})
		if measured != 5 {
			t.Errorf("measured %d times", measured)
		}
		if said := failed(func(t testing.TB) { Again(t, func(try int) error { return fmt.Errorf("wrong %d", try) }) }); said != "5 times, at last: wrong 4; timers were late by up to 100ms" {
			t.Errorf("it said %q", said)
		}
	})
}

// The pause after a slow look is longer.
func TestPause(t *testing.T) {
	for look, want := range map[time.Duration]time.Duration{0: time.Millisecond, 20 * time.Millisecond: 180 * time.Millisecond, time.Minute: time.Second} {
		if got := pause(look); got != want {
			t.Errorf("after a look of %v it waits %v, want %v", look, got, want)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		began, looks := time.Now(), 0
		Await(t, "a minute has passed", func() bool {
			looks++
			time.Sleep(10 * time.Millisecond)
			return time.Since(began) > time.Minute
		})
		if looks > 700 {
			t.Errorf("it looked %d times", looks)
		}
	})
}

// A failure of a machine that is not late is no lateness.
func TestAgainNeedsLateness(t *testing.T) {
	asleep(t, late-1)
	synctest.Test(t, func(t *testing.T) {
		measured := 0
		said := failed(func(t testing.TB) {
			Again(t, func(int) error {
				measured++
				time.Sleep(time.Second)
				return errors.New("wrong")
			})
		})
		if measured != 1 || said != "wrong; the machine was not busy: timers were late by 99.999999ms at most" {
			t.Errorf("measured %d times, and said %q", measured, said)
		}
	})
}

// The longest of all is found, also where the measurement ends first.
func TestLateness(t *testing.T) {
	for name, c := range map[string]struct{ late []time.Duration }{
		"in the middle": {[]time.Duration{0, 3 * time.Millisecond, time.Second, 2 * time.Millisecond}},
		"the last":      {[]time.Duration{0, 1500 * time.Millisecond, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Cleanup(func() { sleep = time.Sleep })
			sleep = func(d time.Duration) {
				if len(c.late) > 0 {
					d += c.late[0]
					c.late = c.late[1:]
				}
				time.Sleep(d)
			}
			want := slices.Max(c.late)
			synctest.Test(t, func(t *testing.T) {
				if got := lateness(func() { time.Sleep(1100 * time.Millisecond) }); got != want {
					t.Errorf("%v, want %v", got, want)
				}
			})
		})
	}
}

// A measurement may end the test, and leaves nothing that runs.
func TestAgainOfATestThatEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if said := failed(func(t testing.TB) { Again(t, func(int) error { t.Fatalf("gone"); return nil }) }); said != "gone" {
			t.Errorf("it said %q", said)
		}
	})
}

// A measurement may name a shorter lateness that excuses its failure.
func TestAgainAfter(t *testing.T) {
	asleep(t, late/2)
	for excuse, want := range map[time.Duration]string{late / 2: "5 times, at last: wrong; timers were late by up to 50ms", late: "wrong; the machine was not busy: timers were late by 50ms at most"} {
		synctest.Test(t, func(t *testing.T) {
			if said := failed(func(t testing.TB) { AgainAfter(t, excuse, func(int) error { return errors.New("wrong") }) }); said != want {
				t.Errorf("it said %q", said)
			}
		})
	}
}
