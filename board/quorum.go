package board

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"heddle/board/space"
	"heddle/internal/netutil"
	"heddle/path"
)

// Limits of the pause before asking a replica again.
const (
	firstPause = 100 * time.Millisecond
	lastPause  = 2 * time.Second
)

// asking is a request to all replicas.
type asking struct {
	where string
	wait  time.Duration
	body  []byte
	lost  *atomic.Bool // set once a replica may have executed the request without an answer
}

// vote is the answer of one replica.
type vote struct {
	from *remote
	raw  []byte
	err  error
}

// poll asks all replicas until f+1 agree, ctx ends, or no f+1 can agree. At most f lie, so one of f+1 is right.
func (c *Client) poll(ctx context.Context, a asking) (space.Result, error) {
	ctx, cancel := lingering(ctx)
	defer cancel()
	votes := make(chan vote, len(c.remotes))
	for _, r := range c.remotes {
		go func() {
			raw, err := c.persist(ctx, r, a)
			votes <- vote{r, raw, err}
		}()
	}
	said, failures := map[string]int{}, []error(nil)
	for range c.remotes {
		v := <-votes
		if v.err != nil {
			failures = append(failures, v.err)
			continue
		}
		if said[string(v.raw)]++; said[string(v.raw)] > c.Faults {
			return space.DecodeResult(v.raw)
		}
	}
	if len(c.remotes) == 1 {
		return space.Result{}, failures[0]
	}
	if len(c.remotes)-len(failures) > c.Faults {
		return space.Result{}, errDisagree
	}
	return space.Result{}, &path.Error{What: "the board", Why: "too few replicas answer", Err: errors.Join(failures...), Hint: "see `heddle board status`"}
}

// linger is the extra time for late replicas to answer, since ending a request closes its connection.
const linger = time.Second

// lingering returns a context that ends linger after it is cancelled, or when ctx ends.
func lingering(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, _ := ctx.Deadline() // every request has one
	inner, end := context.WithDeadline(context.WithoutCancel(ctx), deadline)
	stop := context.AfterFunc(ctx, end)
	return inner, func() {
		if stop() {
			time.AfterFunc(linger, end)
		}
	}
}

// errDisagree means that no f+1 replicas agreed. For a read, some may only be behind.
var errDisagree error = &path.Error{What: "the board", Why: "its replicas do not say the same", Hint: "see `heddle board status`; try again"}

// persist asks one replica until it answers. Requests are idempotent.
func (c *Client) persist(ctx context.Context, r *remote, a asking) ([]byte, error) {
	var before error
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		one, cancel := context.WithTimeout(ctx, a.wait+c.Timeout)
		raw, err := r.result(one, a.where, a.wait, a.body)
		cancel()
		if err == nil {
			return raw, nil
		}
		if Permanent(err) {
			return nil, err
		}
		if _, early := errors.AsType[*unsent](err); !early {
			a.lost.Store(true)
		}
		if before != nil && ctx.Err() != nil { // more informative than the timeout
			return nil, before
		}
		before = err
		c.Log.Debug("asking again", "replica", r.Address, "error", err)
		if netutil.Sleep(ctx, pause) != nil {
			return nil, err
		}
	}
}
