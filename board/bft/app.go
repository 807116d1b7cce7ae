package bft

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	abci "github.com/cometbft/cometbft/abci/types"

	"heddle/board/space"
)

// checkpoint is the number of blocks between headers with a hash of the state, equal in all replicas. If every header had
// one, CometBFT would add an empty block after each write. Only tests change it.
var checkpoint int64 = 128

const (
	retain     = 100_000 // blocks kept for absent replicas and as evidence of double signing
	blockOps   = 2000    // per block, since each replica checks all signatures before it votes
	appVersion = 1       // of the state machine; replicas of different versions do not agree
)

// app implements abci.Application (ABCI 2.0) with a tuple space. The mempool and readers call it during consensus.
type app struct {
	abci.BaseApplication
	genesis genesis
	store   *store
	pool    *pool
	log     *slog.Logger

	mu       sync.RWMutex
	space    *space.Space
	at       position
	finished []answer // of the block to be committed
	waiting  map[space.ID][]chan space.Result
	changed  chan struct{} // closed at the next commit
	waits    atomic.Int64  // requests that wait for a change
	accused  int           // times that a replica signed two things for one height

	snapshots *snapshots
	joining   bool     // no state yet; a snapshot will give it
	offered   *offered // the snapshot being restored
}

// answer is the result of an operation in a block.
type answer struct {
	id     space.ID
	result space.Result
}

// newApp loads the state from the store.
func newApp(g genesis, s *store, snaps *snapshots, log *slog.Logger) (*app, error) {
	board, at, err := s.load(g.config())
	if err != nil {
		return nil, err
	}
	return &app{genesis: g, store: s, snapshots: snaps, pool: newPool(g.Limits.Slack), log: log, space: board, at: at,
		waiting: map[space.ID][]chan space.Result{}, changed: make(chan struct{})}, nil
}

// Info makes CometBFT replay the blocks after LastBlockHeight.
func (a *app) Info(context.Context, *abci.InfoRequest) (*abci.InfoResponse, error) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return &abci.InfoResponse{Data: "heddle board", AppVersion: appVersion, LastBlockHeight: a.at.Height, LastBlockAppHash: a.at.AppHash}, nil
}

func (a *app) InitChain(_ context.Context, r *abci.InitChainRequest) (*abci.InitChainResponse, error) {
	if !bytes.Equal(r.AppStateBytes, a.genesis.raw) {
		return nil, errors.New("the genesis changed while the replica started")
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	hash := a.space.Hash()
	a.at.AppHash = hash[:]
	return &abci.InitChainResponse{AppHash: hash[:]}, nil
}

// Query is called by CometBFT to filter peers. Only replicas in the genesis may connect.
func (a *app) Query(_ context.Context, r *abci.QueryRequest) (*abci.QueryResponse, error) {
	if id, ok := strings.CutPrefix(r.Path, "/p2p/filter/id/"); ok && !a.genesis.has(id) {
		return &abci.QueryResponse{Code: 1, Log: "it is no replica of this board"}, nil
	}
	return &abci.QueryResponse{}, nil
}

// PrepareProposal proposes only operations that all replicas will accept.
func (a *app) PrepareProposal(_ context.Context, r *abci.PrepareProposalRequest) (*abci.PrepareProposalResponse, error) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	var size int64
	proposed, txs := map[space.ID]bool{}, make([][]byte, 0, len(r.Txs))
	for _, tx := range r.Txs {
		op, err := a.pool.decode(tx)
		if size += int64(len(tx)); size > r.MaxTxBytes || len(txs) == blockOps {
			break
		}
		if err == nil && !proposed[op.ID()] && a.space.Check(r.Time, op).Status == space.OK {
			proposed[op.ID()] = true
			txs = append(txs, tx)
		}
	}
	return &abci.PrepareProposalResponse{Txs: txs}, nil
}

// ProcessProposal rejects a block with a duplicate operation, or one that is not admitted.
func (a *app) ProcessProposal(_ context.Context, r *abci.ProcessProposalRequest) (*abci.ProcessProposalResponse, error) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	reject := func(why string) (*abci.ProcessProposalResponse, error) {
		a.log.Warn("proposal rejected", "height", r.Height, "proposer", fmt.Sprintf("%X", r.ProposerAddress), "why", why)
		return &abci.ProcessProposalResponse{Status: abci.PROCESS_PROPOSAL_STATUS_REJECT}, nil
	}
	if len(r.Txs) > blockOps {
		return reject(fmt.Sprintf("it has %d operations, more than %d", len(r.Txs), blockOps))
	}
	seen := map[space.ID]bool{}
	for _, tx := range r.Txs {
		op, err := a.pool.decode(tx)
		if err != nil {
			return reject(err.Error())
		}
		if result := a.space.Check(r.Time, op); result.Status != space.OK {
			return reject(result.Detail)
		}
		if seen[op.ID()] {
			return reject("an operation is in it twice")
		}
		seen[op.ID()] = true
	}
	return &abci.ProcessProposalResponse{Status: abci.PROCESS_PROPOSAL_STATUS_ACCEPT}, nil
}

// FinalizeBlock executes a decided block, whose effects may be read at once.
func (a *app) FinalizeBlock(_ context.Context, r *abci.FinalizeBlockRequest) (*abci.FinalizeBlockResponse, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.space.Advance(r.Time)
	results := make([]*abci.ExecTxResult, 0, len(r.Txs))
	for _, tx := range r.Txs {
		op, err := a.pool.decode(tx)
		if err != nil { // more than f replicas are faulty; still, all do the same
			results = append(results, &abci.ExecTxResult{Code: uint32(space.Malformed)})
			continue
		}
		result := a.space.Apply(r.Time, op)
		a.pool.remove(tx)
		a.finished = append(a.finished, answer{op.ID(), result})
		results = append(results, &abci.ExecTxResult{Data: result.Encode()})
	}
	for _, m := range r.Misbehavior {
		a.accused++
		a.log.Error("a replica signed two blocks of one height", "height", m.Height, "validator", fmt.Sprintf("%X", m.Validator.Address))
	}
	hash := a.space.Hash()
	a.at.Height, a.at.Space = r.Height, hash[:]
	if r.Height%checkpoint == 0 {
		a.at.AppHash = hash[:]
	}
	return &abci.FinalizeBlockResponse{TxResults: results, AppHash: a.at.AppHash}, nil
}

// Commit stores the effects of the block and answers those who wait for it.
func (a *app) Commit(context.Context, *abci.CommitRequest) (*abci.CommitResponse, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.store.commit(a.space.Changes(), a.at); err != nil {
		return nil, fmt.Errorf("store block %d: %w", a.at.Height, err)
	}
	if a.at.Height%snapshotEvery == 0 {
		rows, err := a.store.iterate()
		if err != nil {
			return nil, fmt.Errorf("read block %d: %w", a.at.Height, err)
		}
		a.snapshots.take(a.at.Height, rows)
	}
	for _, done := range a.finished {
		a.tell(done.id, done.result)
	}
	a.finished = nil
	close(a.changed)
	a.changed = make(chan struct{})
	return &abci.CommitResponse{RetainHeight: max(0, a.at.Height-retain)}, nil
}

func (a *app) tell(id space.ID, result space.Result) {
	for _, c := range a.waiting[id] {
		c <- result // it has room for one
	}
	delete(a.waiting, id)
}

// CheckTx decides whether an operation may enter the mempool.
func (a *app) CheckTx(_ context.Context, r *abci.CheckTxRequest) (*abci.CheckTxResponse, error) {
	op, err := a.pool.decode(r.Tx)
	if err != nil {
		return &abci.CheckTxResponse{Code: uint32(space.Malformed), Log: err.Error()}, nil
	}
	a.mu.RLock()
	result := a.space.Check(time.Now(), op)
	_, done := a.space.Remembered(op.ID())
	a.mu.RUnlock()
	switch {
	case done:
		return &abci.CheckTxResponse{Code: codeDone, Log: "it was done before"}, nil
	case result.Status != space.OK:
		a.pool.remove(r.Tx)
		a.mu.Lock()
		a.tell(op.ID(), a.refusal(result))
		a.mu.Unlock()
	case r.Type == abci.CHECK_TX_TYPE_CHECK:
		result = a.pool.admit(r.Tx, op, time.Now())
	}
	if result.Status != space.OK {
		return &abci.CheckTxResponse{Code: uint32(result.Status), Log: result.Detail}, nil
	}
	return &abci.CheckTxResponse{}, nil
}

// codeDone is outside the values of space.Status.
const codeDone = 1 << 16
