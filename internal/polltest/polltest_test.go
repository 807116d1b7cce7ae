package polltest

import (
	"errors"
	"fmt"
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
		var f failure
		defer func() {
			if recover(); f.said != "for 2m0s: not yet: never" {
				t.Errorf("it said %q", f.said)
			}
		}()
		Await(&f, "never", func() bool { return false })
	})
}

// What is slow to look at is looked at more seldom.
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

func TestAgain(t *testing.T) {
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
	var f failure
	defer func() {
		if recover(); f.said != "5 times, at last: wrong 4" {
			t.Errorf("it said %q", f.said)
		}
	}()
	Again(&f, func(try int) error { return fmt.Errorf("wrong %d", try) })
}
