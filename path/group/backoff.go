package group

import "time"

// Backoff spaces tries with exponentially growing waits. The zero value permits a try at once.
type Backoff struct {
	wait time.Duration
	due  time.Time
}

func (b *Backoff) Due(now time.Time) bool { return !now.Before(b.due) }

// Tried records a try. The next one is due after first, or twice the last wait, but at most after longest.
func (b *Backoff) Tried(now time.Time, first, longest time.Duration) {
	b.wait = min(max(2*b.wait, first), longest)
	b.due = now.Add(b.wait)
}

// Next returns when the next try is due.
func (b *Backoff) Next() time.Time { return b.due }

// Trying reports whether there was a try since the last [Backoff.Reset].
func (b *Backoff) Trying() bool { return b.wait > 0 }

// Reset makes the next wait the first one again. It does not change when the next try is due.
func (b *Backoff) Reset() { b.wait = 0 }
