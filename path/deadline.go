package path

import (
	"sync"
	"time"
)

// Deadline is the read deadline of a socket that is made of flows, which have none. Its zero value never passes.
type Deadline struct {
	mu     sync.Mutex
	timer  *time.Timer   // nil where nothing will close passed
	passed chan struct{} // nil before anybody asked
}

// Set replaces the deadline, also for those who wait for it already; the zero time is never.
func (d *Deadline) Set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.passed == nil {
		d.passed = make(chan struct{})
	}
	if d.timer != nil && !d.timer.Stop() {
		<-d.passed // its function is about to close it, or did
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

// Passed is closed once the deadline has passed. It stays good for one wait: ask again for the next one.
func (d *Deadline) Passed() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.passed == nil {
		d.passed = make(chan struct{})
	}
	return d.passed
}
