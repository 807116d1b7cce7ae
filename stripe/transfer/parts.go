package transfer

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
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
	made  map[string]bool    // directories that transfers made, and in which no file got its name yet
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

// create opens the part of a file, and makes it and its directories where they are not there.
func (p *Parts) create(root *os.Root, name string) (*os.File, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var missing []string
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if _, err := root.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
			missing = append(missing, dir)
		}
	}
	for _, dir := range missing {
		if p.made == nil {
			p.made = map[string]bool{}
		}
		p.made[dir] = true
	}
	if len(missing) > 0 {
		if err := root.MkdirAll(missing[0], 0o777); err != nil {
			return nil, refusal("its directory cannot be made: " + cause(err))
		}
	}
	return root.OpenFile(name+PartSuffix, os.O_RDWR|os.O_CREATE|plainFile, 0o666)
}

// tidy removes the directories of a file that transfers made and that are empty, or keeps them for good where the file got its
// name. Else a sender could fill a disk with directories of files that it never sends.
func (p *Parts) tidy(root *os.Root, name string, named bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for dir := path.Dir(name); p.made[dir]; dir = path.Dir(dir) {
		if !named {
			if err := root.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return // something is in it
			}
		}
		delete(p.made, dir)
	}
}
