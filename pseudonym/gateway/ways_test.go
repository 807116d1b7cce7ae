package gateway

import (
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// waiter is a connection that notes that it was closed.
type waiter struct {
	net.Conn
	closed bool
}

func (w *waiter) SetDeadline(time.Time) error { return nil }

func (w *waiter) Close() error {
	w.closed = true
	return nil
}

// The next client gets the connection that waits for the shortest. Those that wait for too long, and those beyond the limit, are closed.
func TestWays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w ways[string]
		if w.take("a") != nil {
			t.Error("there is one at the begin")
		}
		all := make([]*waiter, mostIdle+1)
		for i := range all {
			all[i] = &waiter{}
			w.keep("a", all[i])
			time.Sleep(time.Millisecond)
		}
		if last := all[mostIdle]; !last.closed || w.take("a") != all[mostIdle-1] || w.take("b") != nil {
			t.Error("too many are kept, or another is taken")
		}
		time.Sleep(waitFor - (mostIdle-1)*time.Millisecond)
		if got := w.take("a"); got != all[mostIdle-2] {
			t.Errorf("%v is taken", got)
		}
		for i, one := range all[:mostIdle-2] {
			if want := i <= 2; one.closed != want {
				t.Errorf("connection %d is closed: %v", i, one.closed)
			}
		}
		time.Sleep(waitFor)
		if w.take("a") != nil || !all[mostIdle-3].closed || len(w.idle) != 0 {
			t.Error("old ones are kept")
		}
	})
}

// Ways to so many tenants are kept, and those that nobody visits give way.
func TestWaysToManyTenants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w ways[int]
		for i := range mostKinds {
			w.keep(i, &waiter{})
		}
		one := &waiter{}
		if w.keep(mostKinds, one); !one.closed || len(w.idle) != mostKinds {
			t.Errorf("ways to %d tenants", len(w.idle))
		}
		time.Sleep(waitFor)
		one = &waiter{}
		if w.keep(mostKinds, one); one.closed || len(w.idle) != 1 {
			t.Errorf("ways to %d tenants, of whom nobody is visited", len(w.idle)-1)
		}
	})
}
