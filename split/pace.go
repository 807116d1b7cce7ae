package split

import (
	"context"
	"slices"
	"time"

	"heddle/internal/netutil"
	"heddle/path"
	"heddle/schedule"
)

// The downlink follows the last packet up, one round trip later (CoMPS, section 2.3). Where only the server talks it
// would stay on one path, and where that path dies it would stay there for ever; so the pacer makes the session send
// something small.
const (
	nudgeAfter  = time.Millisecond       // for a packet of the session's own to come first
	quietPeriod = 500 * time.Millisecond // between looks for a silent downlink, where units are packets
	quietLimit  = 15 * time.Second       // after which WireGuard itself makes a new handshake
	quietEven   = 4                      // nudges in silence before the time between them doubles
)

// setNudge gives the fan a way to make the session send something small.
func (f *Fan) setNudge(nudge func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.nudge = nudge
}

// pace nudges the session when a unit is over and only the server talks, and when the server fell silent.
func (f *Fan) pace(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for nudges := 0; ; {
		var nudge func()
		select {
		case <-ctx.Done():
			return
		case <-f.wake:
			f.asleep.Store(false)
			nudges = 0
			if netutil.Sleep(ctx, nudgeAfter) != nil {
				return
			}
			nudge = f.turnIfDue()
		case <-timer.C:
			if nudge = f.turnIfQuiet(); nudge != nil {
				nudges++
			}
		}
		if nudge != nil {
			nudge()
		}
		if f.now().Sub(f.heardAt()) > quietLimit {
			f.asleep.Store(true)
			timer.Reset(time.Hour)
			continue
		}
		timer.Reset(f.lookEvery() << max(0, nudges-quietEven))
	}
}

// lookEvery is how often the pacer looks whether the server fell silent.
func (f *Fan) lookEvery() time.Duration {
	if p := f.o.Schedule.Every.Period; p > 0 {
		return max(p, 4*nudgeAfter)
	}
	return quietPeriod
}

// turnIfDue begins the next unit where it is due and nothing went up meanwhile. It gives the nudge to call, or nil
// where the downlink need not move.
func (f *Fan) turnIfDue() func() {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.now()
	if f.nudge == nil || !f.open || !f.enough || !f.sched.Due(now) {
		return nil
	}
	return f.turn(now, f.usable)
}

// turnIfQuiet leaves the path on which the server fell silent for another one: if the path died, the server does not
// know yet that there are others.
func (f *Fan) turnIfQuiet() func() {
	heard := f.heardAt()
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.now()
	every := f.lookEvery()
	silent := now.Sub(heard) >= every
	speaking := now.Sub(f.lastSent) < every && f.o.Schedule.Every.Period > 0
	if f.nudge == nil || !f.open || !f.enough || !silent || speaking || f.o.Schedule.Every == (schedule.Every{}) {
		return nil
	}
	others := slices.Clone(f.usable)
	if f.current >= 0 {
		others[f.current] = false
	}
	if !slices.Contains(others, true) {
		return nil
	}
	return f.turn(now, others)
}

// turn begins the next unit on one of the lanes given. f.mu is held.
func (f *Fan) turn(now time.Time, lanes []bool) func() {
	before := f.current
	i, began := f.sched.Turn(now, lanes)
	if i < 0 || !began {
		return nil
	}
	f.turned(i)
	f.noteDue(now)
	flow, _ := f.lanes[i].currentFlow()
	if _, rotates := flow.(path.Rotator); i == before && !rotates {
		return nil
	}
	return f.nudge
}
