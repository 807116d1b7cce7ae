package wgqueue

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestFullGateWaitsForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(2)
		g.Enter(2)
		passed := make(chan time.Time)
		start := time.Now()
		go func() { g.Wait(); passed <- time.Now() }()
		time.Sleep(time.Millisecond)
		g.Leave(1)
		if at := <-passed; at.Sub(start) != time.Millisecond {
			t.Errorf("passed after %v", at.Sub(start))
		}
	})
}

// What wireguard-go drops never leaves; the gate must open all the same.
func TestGateForgetsWhatNeverComesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(2)
		g.Enter(5)
		start := time.Now()
		g.Wait()
		if waited := time.Since(start); waited != patience {
			t.Errorf("waited %v", waited)
		}
		g.Leave(3) // what was only late
		g.Enter(1)
		g.Wait()
		if waited := time.Since(start); waited != patience {
			t.Error("packets that leave late make the gate narrower")
		}
	})
}

// Packets that leave after they were forgotten do not let more in than the limit.
func TestLatePacketsDoNotWidenTheGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(2)
		g.Enter(5)
		g.Wait() // forgets them
		g.Leave(5)
		<-g.freed // nobody waited for them
		g.Enter(2)
		start := time.Now()
		g.Wait()
		if waited := time.Since(start); waited != patience {
			t.Errorf("with two packets inside one more waits %v", waited)
		}
	})
}
