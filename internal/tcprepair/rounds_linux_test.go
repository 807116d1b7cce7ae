package tcprepair

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A round serves all who came before it began, and nobody who came later.
func TestRounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var begun atomic.Int32
		const ms = time.Millisecond
		r := &rounds{pause: 200 * ms, do: func() {
			begun.Add(1)
			time.Sleep(time.Second)
		}}
		start := time.Now()
		var all sync.WaitGroup
		came := func(after, want time.Duration) {
			all.Go(func() {
				time.Sleep(after)
				if r.wait(); time.Since(start) != want {
					t.Errorf("who came after %v waited until %v, not %v", after, time.Since(start), want)
				}
			})
		}
		came(0, 1200*ms)
		for i := range time.Duration(10) {
			came((100+i)*ms, 1200*ms)
			came((201+i)*ms, 2400*ms)
		}
		came(1399*ms, 2400*ms)
		came(1401*ms, 3600*ms)
		came(5*time.Second, 6200*ms)
		all.Wait()
		if n := begun.Load(); n != 4 {
			t.Errorf("%d rounds", n)
		}
		synctest.Wait()
		if r.running || r.next != nil {
			t.Error("a round runs for nobody")
		}
	})
}
