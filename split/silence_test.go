package split

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"heddle/path"
)

// ordered is a reorderer whose output can be read as a text, a letter a datagram.
type ordered struct {
	*reorderer
	t   *testing.T
	got []byte
}

func newOrdered(t *testing.T, window time.Duration) *ordered {
	o := &ordered{t: t}
	o.reorderer = newReorderer(window, 3, func(datagrams [][]byte) {
		for _, d := range datagrams {
			o.got = append(o.got, d[0])
		}
	})
	return o
}

// arrive takes one datagram for each letter, whose order nothing tells.
func (o *ordered) arrive(i int, letters string) {
	for _, c := range []byte(letters) {
		buffer := []byte{c}
		o.arrived(i, []path.Inbound{{Data: buffer, Size: 1}})
		buffer[0] = '!' // the buffer is the receiver's again
	}
}

func (o *ordered) want(text string) {
	o.t.Helper()
	synctest.Wait()
	o.mu.Lock()
	defer o.mu.Unlock()
	if string(o.got) != text {
		o.t.Errorf("%q was given, want %q", o.got, text)
	}
}

func TestNewPathWaitsUntilTheOneBeforeHasDelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOrdered(t, 30*time.Millisecond)
		o.arrive(0, "a")
		for _, c := range "bcdef" { // the queue of path 0 drains, while path 1 delivers already
			time.Sleep(time.Millisecond)
			o.arrive(0, string(c))
			o.arrive(1, strings.ToUpper(string(c)))
		}
		o.want("abBcdef") // the first of path 1 may be what the server needs to follow there
		time.Sleep(drained)
		o.want("abBcdefCDEF")
		o.arrive(1, "g")
		o.want("abBcdefCDEFg")
		time.Sleep(2 * drained)
		o.arrive(0, "h") // all is quiet: nothing to wait for
		o.want("abBcdefCDEFgh")
	})
}

func TestVisitsAreGivenInTheOrderInWhichTheyBegan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOrdered(t, 30*time.Millisecond)
		o.arrive(0, "a")
		o.arrive(1, "12")
		o.arrive(2, "34")
		o.arrive(1, "5")
		o.arrive(0, "b")
		o.want("a13b")
		time.Sleep(10 * drained)
		o.want("a13b254")
	})
}

func TestNothingIsHeldForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOrdered(t, 30*time.Millisecond)
		o.arrive(0, "a")
		o.arrive(1, "AB")
		for range 31 { // path 0 goes on and on
			time.Sleep(time.Millisecond)
			o.arrive(0, "a")
		}
		synctest.Wait()
		o.mu.Lock()
		if at := strings.IndexByte(string(o.got), 'B'); at < 25 || at > 31 {
			t.Errorf("B was given after %d of path 0", at)
		}
		o.got = nil
		o.mu.Unlock()
		time.Sleep(time.Second)
		o.arrive(0, "a")
		o.arrive(1, strings.Repeat("b", heldLimit+1))
		o.want("a" + strings.Repeat("b", heldLimit+1))
	})
}
