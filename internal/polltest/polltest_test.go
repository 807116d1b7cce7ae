package polltest

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
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
			if recover(); f.said != "for 1m0s: not yet: never" {
				t.Errorf("it said %q", f.said)
			}
		}()
		Await(&f, "never", func() bool { return false })
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
