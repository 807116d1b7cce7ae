package board

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"heddle/board/space"
	"heddle/identity"
	"heddle/path"
)

// Limits of a board in one process.
const (
	maxBatch   = 256  // operations that share an fsync
	maxWaiting = 4096 // requests that wait for a tuple
	tidyEvery  = 10 * time.Second
)

// Local is a board of one process. It is linearizable, even across a crash: it answers after its state is in the file.
type Local struct {
	key   identity.Key
	store *store
	log   *slog.Logger
	clock func() time.Time

	requests chan *request
	stopped  chan struct{} // the loop has ended

	mu      sync.RWMutex // guards the space between commits
	space   *space.Space
	failed  error
	waiting []*request // in order of arrival
}

// LocalOptions configure a [Local].
type LocalOptions struct {
	File    string
	Key     identity.Key // of the server; names the space
	Limits  space.Limits
	Members []identity.Key // nil: everybody
	Log     *slog.Logger
	Clock   func() time.Time // nil: the machine's
}

// request is a unit of work of the loop: an operation, a read that waits, or the end of another request's wait.
type request struct {
	ctx    context.Context // of the caller
	op     space.SignedOp  // or none, for a read
	reader identity.Key
	query  space.Query
	wait   bool

	ends *request // the request whose wait ends

	result space.Result
	err    error
	done   chan struct{}
}

func (r *request) isOp() bool { return r.op.Bytes() != nil }

// late is the result of a wait without a tuple.
var late = space.Result{Status: space.None, Detail: "no such tuple came in time"}

var errClosed = errors.New("the board has stopped")

// Open reads the board from its file, or creates a new one.
func Open(o LocalOptions) (*Local, error) {
	store, err := openStore(o.File)
	if err != nil {
		return nil, err
	}
	rows, err := store.rows()
	var s *space.Space
	if err == nil {
		s, err = space.Load(space.Config{Name: SpaceOf(o.Key), Limits: o.Limits, Members: o.Members}, rows)
	}
	if err != nil {
		return nil, errors.Join(&path.Error{What: "the board's file " + o.File, Why: "does not hold the state of this board", Err: err,
			Hint: "it belongs to the identity with which it was made"}, store.close())
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	clock := &steady{machine: o.Clock, log: o.Log, last: s.Usage().Clock}
	return &Local{key: o.Key, store: store, log: o.Log, clock: clock.now, space: s, requests: make(chan *request, maxBatch), stopped: make(chan struct{})}, nil
}

// Run works until ctx ends or the disk fails, and closes the file. Requests are only answered while it runs.
func (l *Local) Run(ctx context.Context) error {
	tidy := time.NewTicker(tidyEvery)
	defer tidy.Stop()
	for l.failed == nil {
		select {
		case <-ctx.Done():
			l.end(errClosed)
			return l.store.close()
		case <-tidy.C:
			l.tidy()
		case r := <-l.requests:
			l.batch(l.more(r))
		}
	}
	l.end(l.failed)
	return errors.Join(l.failed, l.store.close())
}

// end fails all requests.
func (l *Local) end(why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failed = why
	for _, r := range l.waiting {
		r.err = why
		close(r.done)
	}
	l.waiting = nil
	close(l.stopped)
}

// more collects pending requests to share one fsync.
func (l *Local) more(first *request) []*request {
	batch := []*request{first}
	for len(batch) < maxBatch {
		select {
		case r := <-l.requests:
			batch = append(batch, r)
		default:
			return batch
		}
	}
	return batch
}

// batch executes requests in order, commits their changes to the disk, and then answers.
func (l *Local) batch(batch []*request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, before := l.clock(), l.space.Usage().Version
	var done []*request
	for _, r := range batch {
		done = append(done, l.do(now, r)...)
	}
	if l.space.Usage().Version != before {
		l.commit()
	}
	for _, r := range done {
		if r.err = l.failed; r.err != nil {
			r.result = space.Result{}
		}
		close(r.done)
	}
}

func (l *Local) commit() {
	if err := l.store.commit(l.space.Changes()); err != nil {
		// The space is ahead of the disk, and its changes must not become visible.
		l.failed = &path.Error{What: "the board", Why: "cannot write to its disk, and has stopped", Err: err, Hint: "see whether the disk is full"}
		l.log.Error("the board stops", "error", err)
	}
}

// do executes a request and returns the requests that are done by it.
func (l *Local) do(now time.Time, r *request) []*request {
	switch {
	case r.ends != nil:
		done := []*request{r}
		if at := slices.Index(l.waiting, r.ends); at >= 0 {
			l.waiting = slices.Delete(l.waiting, at, at+1)
			r.ends.result = late
			done = append(done, r.ends)
		}
		return done
	case !l.try(now, r):
		if len(l.waiting) >= maxWaiting {
			r.result = space.Result{Status: space.Full, Detail: "too many wait already"}
			return []*request{r}
		}
		if r.ctx.Err() != nil { // its end was handled before it
			r.result = late
			return []*request{r}
		}
		l.waiting = append(l.waiting, r)
		return nil
	case !r.isOp() || r.result.Status != space.OK || r.op.Op().Verb == space.Inp || r.op.Op().Verb == space.Renew:
		return []*request{r}
	}
	return append([]*request{r}, l.wake(now, r.op.Op().Tuple)...)
}

// try executes a request unless it must wait.
func (l *Local) try(now time.Time, r *request) bool {
	if !r.isOp() {
		r.result = l.space.Read(now, r.reader, r.query)
		return !r.wait || r.result.Status != space.None
	}
	if op := r.op.Op(); r.wait && op.Verb == space.Inp {
		_, done := l.space.Remembered(r.op.ID())
		if !done && l.space.Check(now, r.op).Status == space.OK && !l.space.Takeable(now, op.Author, op.Template) {
			return false
		}
	}
	r.result = l.space.Apply(now, r.op)
	return true
}

// wake executes the requests that wait for a tuple, first come first served.
func (l *Local) wake(now time.Time, tuple space.Tuple) (done []*request) {
	l.waiting = slices.DeleteFunc(l.waiting, func(r *request) bool {
		template := r.query.Template
		if r.isOp() {
			template = r.op.Op().Template
		}
		// A caller that has gone takes nothing. The request to end its wait is on the way.
		if r.ctx.Err() != nil || !template.Matches(tuple) || !l.try(now, r) {
			return false
		}
		done = append(done, r)
		return true
	})
	return done
}

// tidy drops expired state while no requests come.
func (l *Local) tidy() {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.space.Usage()
	l.space.Advance(l.clock())
	if after := l.space.Usage(); after.Tuples != before.Tuples || after.Remembered != before.Remembered {
		l.commit()
	}
}

// send passes a request to the loop and waits for its end.
func (l *Local) send(r *request) error {
	r.done = make(chan struct{})
	select {
	case l.requests <- r:
	case <-l.stopped:
		return errClosed
	}
	select {
	case <-r.done:
		return r.err
	case <-l.stopped:
		select {
		case <-r.done: // both may be ready
			return r.err
		default:
			return errClosed
		}
	}
}

// waitFor sends a request that may wait, and ends its wait in time.
func (l *Local) waitFor(ctx context.Context, r *request, wait time.Duration) (space.Result, error) {
	r.ctx = ctx
	if wait > 0 {
		limited, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		r.ctx = limited
		stop := context.AfterFunc(limited, func() { _ = l.send(&request{ends: r}) })
		defer stop()
	}
	err := l.send(r)
	return r.result, err
}

// Apply implements [Backend].
func (l *Local) Apply(ctx context.Context, op space.SignedOp, wait time.Duration) (space.Result, error) {
	return l.waitFor(ctx, &request{op: op, wait: wait > 0}, wait)
}

// Read implements [Backend].
func (l *Local) Read(ctx context.Context, reader identity.Key, q space.Query, wait time.Duration) (space.Result, error) {
	l.mu.RLock()
	result, version, failed := l.space.Read(l.clock(), reader, q), l.space.Usage().Version, l.failed
	l.mu.RUnlock()
	if failed != nil {
		return space.Result{}, failed
	}
	if q.Since > version {
		return space.Result{}, &httpError{409, "the board has forgotten what it acknowledged: its file was replaced by an older one"}
	}
	if result.Status != space.None || wait <= 0 {
		return result, nil
	}
	return l.waitFor(ctx, &request{reader: reader, query: q, wait: true}, wait)
}

// Status implements [Backend].
func (l *Local) Status(context.Context) (Status, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	config := l.space.Config()
	s := Status{Space: config.Name, Limits: config.Limits, Usage: l.space.Usage(), Now: l.clock().UTC(), Waiting: len(l.waiting), Members: -1, Key: l.key}
	if config.Members != nil {
		s.Members = len(config.Members)
	}
	return s, l.failed
}

// Member reports whether a key is admitted.
func (l *Local) Member(who identity.Key) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.space.Member(who)
}

// Close closes a board that does not run.
func (l *Local) Close() error { return l.store.close() }
