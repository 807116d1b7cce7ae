package split

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestNewPathWaitsForTheOneBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []byte
		r := newReorderer(5*time.Millisecond, func(datagrams [][]byte) {
			for _, d := range datagrams {
				got = append(got, d[0])
			}
		})
		arrive := func(path int, names string) {
			for _, c := range []byte(names) {
				buffer := []byte{c}
				r.arrived(path, [][]byte{buffer})
				buffer[0] = '!' // the buffer is the receiver's again
			}
		}
		want := func(text string) {
			t.Helper()
			synctest.Wait()
			r.mu.Lock()
			defer r.mu.Unlock()
			if string(got) != text {
				t.Errorf("%v after the start: %q was given, want %q", time.Now(), got, text)
			}
		}
		arrive(0, "a")
		time.Sleep(time.Millisecond)
		arrive(1, "de") // by a shorter path
		arrive(0, "b")
		time.Sleep(2 * time.Millisecond)
		arrive(0, "c")
		want("abc")
		time.Sleep(4 * time.Millisecond)
		want("abcde")
		arrive(1, "f")
		want("abcdef")
		time.Sleep(6 * time.Millisecond)
		arrive(0, "g") // the other path has long been quiet
		want("abcdefg")
		for range heldLimit {
			arrive(1, "h")
		}
		want("abcdefg" + string(slices.Repeat([]byte("h"), heldLimit)))
		arrive(2, "x")
		arrive(0, "y") // a third path passes while one is held
		want("abcdefg" + string(slices.Repeat([]byte("h"), heldLimit)) + "y")
		time.Sleep(6 * time.Millisecond)
		want("abcdefg" + string(slices.Repeat([]byte("h"), heldLimit)) + "yx")
	})
}
