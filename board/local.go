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

// Bounds of a board in one process.
const (
	maxBatch   = 256  // operations that share an fsync
	maxWaiting = 4096 // requests that wait for a tuple
	tidyEvery  = 10 * time.Second
)

// Local is a board of one process with its state in a file. It is linearizable, also over a crash: it answers from the disk.
type Local struct {
	key   identity.Key
	store *store
	log   *slog.Logger
	clock func() time.Time

	requests chan *request
	stopped  chan struct{} // the loop has ended

	mu      sync.RWMutex // the space, between its commits
	space   *space.Space
	failed  error
	waiting []*request // in the order of arrival
}

// LocalOptions say what a board keeps, and where.
type LocalOptions struct {
	File    string
	Key     identity.Key // of the server; it names the space
	Limits  space.Limits
	Members []identity.Key // nil: everybody
	Log     *slog.Logger
	Clock   func() time.Time // nil: the machine's
}

// request is one that the loop has to do: an operation, a read that waits, or the end of another one's waiting.
type request struct {
	ctx    context.Context // of who waits
	op     space.SignedOp  // or none, and then
	reader identity.Key
	query  space.Query
	wait   bool

	ends *request // another request that shall wait no longer

	result space.Result
	err    error
	done   chan struct{}
}

func (r *request) isOp() bool { return r.op.Bytes() != nil }

// late is the answer to who waited for nothing.
var late = space.Result{Status: space.None, Detail: "no such tuple came in time"}

var errClosed = errors.New("the board has stopped")

// Open reads the board from its file, or makes a new one.
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

// Run works until ctx ends, or until the disk fails, and closes the file. Without it nothing is answered.
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

// end tells everybody that nothing more comes.
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

// more takes what else has come, so that one fsync is for all of it.
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

// batch does requests in their order, puts what they changed on the disk, and then answers.
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
		// The space is ahead of the disk, and nobody may see what is not there.
		l.failed = &path.Error{What: "the board", Why: "cannot write to its disk, and has stopped", Err: err, Hint: "see whether the disk is full"}
		l.log.Error("the board stops", "error", err)
	}
}

// do gives the requests that are done by this one.
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
		if r.ctx.Err() != nil { // what ends its waiting has come before it
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

// try does a request, unless it has to wait.
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

// wake gives what has waited for a tuple, the first who came first.
func (l *Local) wake(now time.Time, tuple space.Tuple) (done []*request) {
	l.waiting = slices.DeleteFunc(l.waiting, func(r *request) bool {
		template := r.query.Template
		if r.isOp() {
			template = r.op.Op().Template
		}
		// Who has gone takes nothing; the end of its waiting is on the way.
		if r.ctx.Err() != nil || !template.Matches(tuple) || !l.try(now, r) {
			return false
		}
		done = append(done, r)
		return true
	})
	return done
}

// tidy drops what has ended while nobody asked.
func (l *Local) tidy() {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.space.Usage()
	l.space.Advance(l.clock())
	if after := l.space.Usage(); after.Tuples != before.Tuples || after.Remembered != before.Remembered {
		l.commit()
	}
}

// send gives a request to the loop and waits for its end.
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
		case <-r.done: // both may be so
			return r.err
		default:
			return errClosed
		}
	}
}

// waitFor sends a request that may wait, and ends its waiting in time.
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

// Apply is of [Backend].
func (l *Local) Apply(ctx context.Context, op space.SignedOp, wait time.Duration) (space.Result, error) {
	return l.waitFor(ctx, &request{op: op, wait: wait > 0}, wait)
}

// Read is of [Backend].
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

// Status is of [Backend].
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

// Member reports whether somebody is let in.
func (l *Local) Member(who identity.Key) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.space.Member(who)
}

// Close closes a board that does not run.
func (l *Local) Close() error { return l.store.close() }
