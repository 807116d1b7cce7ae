package bft

import (
	"context"
	"fmt"
	"slices"
	"time"

	"heddle/board/space"
	"heddle/path"
)

func (a *app) height() int64 {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.at.Height
}

func (a *app) remembered(id space.ID) (space.Result, bool) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.space.Remembered(id)
}

// await returns the result of an operation if it is known, or the channel on which it will come.
func (a *app) await(op space.SignedOp) (result space.Result, known bool, later chan space.Result) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if result, known := a.space.Remembered(op.ID()); known {
		return result, true, nil
	}
	if result := a.space.Check(time.Now(), op); result.Status != space.OK {
		return a.refusal(result), true, nil
	}
	later = make(chan space.Result, 1)
	a.waiting[op.ID()] = append(a.waiting[op.ID()], later)
	return space.Result{}, false, later
}

// refusal makes a refusal that correct replicas give alike although their clocks differ. Rounded to a quarter of the slack,
// the clocks have at most two values, so f+1 correct replicas share one. The client uses it to sign again.
func (a *app) refusal(r space.Result) space.Result {
	if r.Status != space.Clock {
		return space.Result{Status: r.Status, Detail: r.Detail}
	}
	slack := a.genesis.Limits.Slack
	return space.Result{Status: r.Status, Now: time.Now().UTC().Truncate(slack / 4),
		Detail: fmt.Sprintf("the operation's time is more than %v from the board's", slack)}
}

func (a *app) giveUp(id space.ID, later chan space.Result) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.waiting[id] = slices.DeleteFunc(a.waiting[id], func(c chan space.Result) bool { return c == later }); len(a.waiting[id]) == 0 {
		delete(a.waiting, id)
	}
}

// until waits until so holds, checked at each commit, or until wait is over. It fails only if ctx ends.
func (a *app) until(ctx context.Context, wait time.Duration, so func(*space.Space, time.Time) bool) error {
	look := func() (bool, <-chan struct{}) {
		a.mu.RLock()
		defer a.mu.RUnlock()
		return so(a.space, time.Now()), a.changed
	}
	is, changed := look()
	if is {
		return nil
	}
	defer a.waits.Add(-1)
	if a.waits.Add(1) > maxWaiting {
		return &path.Error{What: "the replica", Why: "as many requests wait here as may", Hint: "try again later"}
	}
	over := time.NewTimer(wait)
	defer over.Stop()
	for {
		select {
		case <-changed:
		case <-over.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
		if is, changed = look(); is {
			return nil
		}
	}
}
