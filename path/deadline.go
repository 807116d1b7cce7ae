package path

import (
	"sync"
	"time"
)

// Deadline is a read deadline for a socket made of flows, which have none. The zero value never expires.
type Deadline struct {
	mu     sync.Mutex
	timer  *time.Timer   // nil if nothing will close passed
	passed chan struct{} // nil before the first call of Passed
}

// Set replaces the deadline, also for current waiters. The zero time means never.
func (d *Deadline) Set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.passed == nil {
		d.passed = make(chan struct{})
	}
	if d.timer != nil && !d.timer.Stop() {
		<-d.passed // the timer's function closes it, or did
	}
	d.timer = nil
	select {
	case <-d.passed:
		d.passed = make(chan struct{})
	default:
	}
	if t.IsZero() {
		return
	}
	passed := d.passed
	if wait := time.Until(t); wait > 0 {
		d.timer = time.AfterFunc(wait, func() { close(passed) })
		return
	}
	close(passed)
}

// Passed returns a channel that is closed at the deadline. Call it again for each wait.
func (d *Deadline) Passed() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.passed == nil {
		d.passed = make(chan struct{})
	}
	return d.passed
}
