package transfer

import (
	"context"
	"errors"
	"sync"
)

// ErrTakenOver ends a transfer whose sender began a newer one of the same file. The sender may be gone: a session outlives it
// for a while, so that its paths can come back.
var ErrTakenOver = errors.New("a newer transfer of the same sender goes on with its files")

// Parts knows which transfers of one directory receive which files, so that a sender that comes back takes over at once what
// its transfer before holds. The zero value is ready.
type Parts struct {
	mu    sync.Mutex
	count uint64
	taken map[string]*taking // by the name of the file
}

// taking is one file that a transfer receives.
type taking struct {
	by   *turn
	left chan struct{} // closed once it is given back
}

// turn is one transfer.
type turn struct {
	parts  *Parts
	from   string // who sends; nobody where it is empty
	number uint64 // of a newer one it is higher
	over   context.Context
	end    context.CancelCauseFunc
}

// begin notes a transfer, which ends with ctx or by [turn.end].
func (p *Parts) begin(ctx context.Context, from string) *turn {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count++
	t := &turn{parts: p, from: from, number: p.count}
	t.over, t.end = context.WithCancelCause(ctx)
	return t
}

// take has a file received by this transfer alone, until leave. It ends an older transfer of the same sender that receives it,
// and waits for that. It fails with a [refusal] where another transfer goes on with the file.
func (t *turn) take(name string) (leave func(), err error) {
	for {
		older := t.tryTake(name)
		switch {
		case older == nil:
			return func() { t.parts.leave(name) }, nil
		case older.by.from != t.from || t.from == "" || older.by.number >= t.number:
			return func() {}, refusal("another transfer receives it at the moment")
		}
		older.by.end(ErrTakenOver)
		select {
		case <-older.left:
		case <-t.over.Done():
			return func() {}, refusal("the transfer is over")
		}
	}
}

// tryTake takes a file, or gives who has it.
func (t *turn) tryTake(name string) *taking {
	p := t.parts
	p.mu.Lock()
	defer p.mu.Unlock()
	if has := p.taken[name]; has != nil {
		return has
	}
	if p.taken == nil {
		p.taken = map[string]*taking{}
	}
	p.taken[name] = &taking{t, make(chan struct{})}
	return nil
}

func (p *Parts) leave(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.taken[name].left)
	delete(p.taken, name)
}
