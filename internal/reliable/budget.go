package reliable

import "sync"

// Budget is memory that streams share. Calls may overlap, also those of its loans.
type Budget struct {
	mu   sync.Mutex
	left int64
}

func NewBudget(bytes int64) *Budget { return &Budget{left: bytes} }

// Loan begins the account of one stream or session.
func (b *Budget) Loan() *Loan { return &Loan{of: b} }

// Loan is what one stream or session has of a [Budget]. A nil Loan grants all.
type Loan struct {
	of    *Budget
	bytes int64
	ended bool
}

// Take takes so many bytes more, or none if the budget has too few.
func (l *Loan) Take(bytes int64) bool {
	if l == nil {
		return true
	}
	l.of.mu.Lock()
	defer l.of.mu.Unlock()
	if l.ended || bytes > l.of.left {
		return false
	}
	l.of.left -= bytes
	l.bytes += bytes
	return true
}

// Return gives back bytes that were taken.
func (l *Loan) Return(bytes int64) {
	if l == nil {
		return
	}
	l.of.mu.Lock()
	defer l.of.mu.Unlock()
	bytes = min(bytes, l.bytes)
	l.of.left += bytes
	l.bytes -= bytes
}

// End gives back all. Nothing can be taken after it.
func (l *Loan) End() {
	if l == nil {
		return
	}
	l.of.mu.Lock()
	defer l.of.mu.Unlock()
	l.of.left += l.bytes
	l.bytes, l.ended = 0, true
}
