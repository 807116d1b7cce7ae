package bft

import (
	"fmt"
	"testing"
	"time"

	"heddle/internal/polltest"
)

// One of four is killed, then a second; then they come back.
func TestKilled(t *testing.T) {
	f := newFleet(t, loopback(t), here)
	f.startAll()
	u := f.user(30 * time.Second)
	u.mustPut("first")
	f.checkWaits()
	f.checkClock()
	median4 := u.putMany("four", 12)
	f.kill(3)
	median3 := u.putMany("three", 12)
	u.check()
	t.Logf("a write took %v with four replicas, %v with three (medians)", median4, median3)
	f.kill(2)
	short := f.user(3 * time.Second)
	short.want = u.want
	if _, err := short.put("two"); err == nil {
		t.Fatal("two of four replicas took a write")
	}
	u.unsure = append(u.unsure, short.unsure...)
	u.check() // what two say alike can be read
	begin := time.Now()
	f.start(2, "")
	u.putUntil("again", 60*time.Second)
	t.Logf("writes went on %v after the third was started", time.Since(begin).Round(time.Millisecond))
	f.start(3, "")
	u.mustPut("last")
	u.check()
	f.caughtUp(3)
}

func (u *user) putMany(name string, n int) time.Duration {
	u.t.Helper()
	var took []time.Duration
	for i := range n {
		took = append(took, u.mustPut(fmt.Sprintf("%s-%d", name, i)))
	}
	return median(took)
}

// caughtUp waits until a replica has as many blocks as the others say.
func (f *fleet) caughtUp(i int) {
	f.t.Helper()
	f.caughtUpWith(i, len(f.running)-1)
}

// caughtUpWith waits for so many others.
func (f *fleet) caughtUpWith(i, others int) {
	f.t.Helper()
	polltest.Until(f.t, func() error {
		_, detail, err := askStatus(f.t.Context(), f.home(i), f.dial)
		up := 0
		for _, p := range detail.Peers {
			if p.Up && p.Height <= detail.Height && p.Height > 0 {
				up++
			}
		}
		if err == nil && up < others {
			err = fmt.Errorf("replica %d is not with the others: %+v", i, detail)
		}
		return err
	})
}
