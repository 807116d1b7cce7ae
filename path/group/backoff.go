package group

import "time"

// Backoff spaces tries: each waits twice as long as the one before. Its zero value permits a try at once.
type Backoff struct {
	wait time.Duration
	due  time.Time
}

// Due reports whether to try now.
func (b *Backoff) Due(now time.Time) bool { return !now.Before(b.due) }

// Tried notes a try: the next one is due after first, or after twice what the last one waited, at most after longest.
func (b *Backoff) Tried(now time.Time, first, longest time.Duration) {
	b.wait = min(max(2*b.wait, first), longest)
	b.due = now.Add(b.wait)
}

// Next is when the next try is due.
func (b *Backoff) Next() time.Time { return b.due }

// Trying reports whether there was a try since the last Reset.
func (b *Backoff) Trying() bool { return b.wait > 0 }

// Reset lets the next wait be the first again. What is due stays due.
func (b *Backoff) Reset() { b.wait = 0 }
