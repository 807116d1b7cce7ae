package bft

import (
	"context"
	"errors"
	"slices"
	"time"

	abci "github.com/cometbft/cometbft/abci/types"
	"github.com/cometbft/cometbft/mempool"

	"heddle/board/space"
	"heddle/path"
	"heddle/path/identity"
)

// application is what CometBFT drives.
type application = abci.Application

func (a *app) height() int64 {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.at.Height
}

// await says where the result of an operation will come, or gives it where it is known already.
func (a *app) await(op space.SignedOp) (result space.Result, known bool, later chan space.Result) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if result, known := a.space.Remembered(op.ID()); known {
		return result, true, nil
	}
	if result := a.space.Check(time.Now(), op); result.Status != space.OK {
		return result, true, nil
	}
	later = make(chan space.Result, 1)
	a.waiting[op.ID()] = append(a.waiting[op.ID()], later)
	return space.Result{}, false, later
}

func (a *app) giveUp(id space.ID, later chan space.Result) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.waiting[id] = slices.DeleteFunc(a.waiting[id], func(c chan space.Result) bool { return c == later }); len(a.waiting[id]) == 0 {
		delete(a.waiting, id)
	}
}

// Apply gives an operation to all replicas, and returns what it came to once it is committed. An error says nothing of
// whether it will be done: ask again with the same operation.
func (r *replica) Apply(ctx context.Context, op space.SignedOp) (space.Result, error) {
	result, known, later := r.app.await(op)
	if known {
		return result, nil
	}
	defer r.app.giveUp(op.ID(), later)
	answer, err := r.node.Mempool().CheckTx(op.Bytes(), "")
	switch {
	case errors.Is(err, mempool.ErrTxInCache): // another replica gave it to this one
	case err != nil:
		return space.Result{}, &path.Error{What: "the replica", Why: "takes no operation now", Err: err, Hint: "try again in a moment"}
	default:
		answer.Wait()
		if checked := answer.Response.GetCheckTx(); checked.Code != 0 && checked.Code != codeDone {
			return space.Result{Status: space.Status(checked.Code), Detail: checked.Log}, nil
		}
	}
	if result, done := r.app.done(op.ID()); done { // by a block between the first look and the mempool's
		return result, nil
	}
	select {
	case result := <-later:
		return result, nil
	case <-ctx.Done():
		return space.Result{}, &path.Error{What: "the replica", Why: "the replicas did not agree in time", Err: ctx.Err(),
			Hint: "more than f of them may be down or apart; the operation may yet be done"}
	}
}

func (a *app) done(id space.ID) (space.Result, bool) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.space.Remembered(id)
}

// Read gives what this replica has.
func (r *replica) Read(reader identity.Key, q space.Query) (space.Result, error) {
	r.app.mu.RLock()
	defer r.app.mu.RUnlock()
	return r.app.space.Read(time.Now(), reader, q), nil
}

// Changed is closed when the next block is committed.
func (r *replica) Changed() <-chan struct{} {
	r.app.mu.RLock()
	defer r.app.mu.RUnlock()
	return r.app.changed
}
