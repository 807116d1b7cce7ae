package path

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d Deadline
		over := func() bool {
			select {
			case <-d.Passed():
				return true
			default:
				return false
			}
		}
		step := func(what string, set time.Time, sleep time.Duration, want bool) {
			t.Helper()
			d.Set(set)
			time.Sleep(sleep)
			synctest.Wait()
			if over() != want {
				t.Errorf("%s: passed is %v", what, !want)
			}
		}
		if over() {
			t.Error("none was set, and it passed")
		}
		waiting, woken := d.Passed(), time.Now() // from before any was set
		step("in the past", time.Now().Add(-time.Second), 0, true)
		if <-waiting; time.Since(woken) != 0 {
			t.Error("who waited already was not woken at once")
		}
		step("never again", time.Time{}, time.Hour, false)
		step("before its time", time.Now().Add(time.Minute), 59*time.Second, false)
		waiting = d.Passed()
		step("put off", time.Now().Add(time.Minute), 59*time.Second, false)
		step("put forward", time.Now().Add(time.Second), time.Second, true)
		<-waiting
		step("after it passed", time.Now().Add(time.Second), 999*time.Millisecond, false)
		time.Sleep(time.Millisecond)
		if synctest.Wait(); !over() {
			t.Error("it did not pass")
		}
	})
}
