package bft

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	abci "github.com/cometbft/cometbft/abci/types"

	"heddle/board/space"
)

const (
	snapshotFormat = 1 // space.Snapshot in chunks
	snapshotChunk  = 1 << 20
)

// snapshotEvery is the number of blocks between snapshots, a multiple of checkpoint. Only tests change it.
var snapshotEvery = 64 * checkpoint

// offered is a snapshot being restored.
type offered struct {
	height int64
	hash   []byte // of the state, signed by two thirds of the replicas
	sums   [][]byte
	chunks [][]byte
	from   []string // the sender of each chunk
}

// ListSnapshots lists the snapshots that are at least two blocks old, since a restore needs the two blocks after it.
func (a *app) ListSnapshots(context.Context, *abci.ListSnapshotsRequest) (*abci.ListSnapshotsResponse, error) {
	all, at := a.snapshots.list(), a.height()
	response := &abci.ListSnapshotsResponse{}
	for _, s := range all {
		if s.height+2 <= at {
			response.Snapshots = append(response.Snapshots, &abci.Snapshot{Height: uint64(s.height), Format: snapshotFormat,
				Chunks: uint32(len(s.sums)), Hash: s.hash(), Metadata: bytes.Join(s.sums, nil)})
		}
	}
	return response, nil
}

func (a *app) LoadSnapshotChunk(_ context.Context, r *abci.LoadSnapshotChunkRequest) (*abci.LoadSnapshotChunkResponse, error) {
	if r.Format != snapshotFormat || r.Height > 1<<62 {
		return &abci.LoadSnapshotChunkResponse{}, nil
	}
	chunk, err := a.snapshots.chunk(int64(r.Height), int(r.Chunk))
	return &abci.LoadSnapshotChunkResponse{Chunk: chunk}, err
}

// OfferSnapshot trusts only AppHash, which the others signed. The rest is the word of the offering peer.
func (a *app) OfferSnapshot(_ context.Context, r *abci.OfferSnapshotRequest) (*abci.OfferSnapshotResponse, error) {
	answer := func(result abci.OfferSnapshotResult) (*abci.OfferSnapshotResponse, error) {
		return &abci.OfferSnapshotResponse{Result: result}, nil
	}
	s := r.Snapshot
	switch {
	case s == nil || s.Height%uint64(checkpoint) != 0 || s.Height > 1<<62:
		return answer(abci.OFFER_SNAPSHOT_RESULT_REJECT)
	case s.Format != snapshotFormat:
		return answer(abci.OFFER_SNAPSHOT_RESULT_REJECT_FORMAT)
	case s.Chunks == 0 || int64(s.Chunks) > 2+2*a.genesis.Limits.Bytes/snapshotChunk || len(s.Metadata) != int(s.Chunks)*sha256.Size:
		return answer(abci.OFFER_SNAPSHOT_RESULT_REJECT_SENDER)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.offered = &offered{height: int64(s.Height), hash: r.AppHash, sums: slices.Collect(slices.Chunk(s.Metadata, sha256.Size)),
		chunks: make([][]byte, s.Chunks), from: make([]string, s.Chunks)}
	return answer(abci.OFFER_SNAPSHOT_RESULT_ACCEPT)
}

// ApplySnapshotChunk replaces the state with the last chunk, if the whole has the signed hash.
func (a *app) ApplySnapshotChunk(_ context.Context, r *abci.ApplySnapshotChunkRequest) (*abci.ApplySnapshotChunkResponse, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	o := a.offered
	if o == nil || int(r.Index) >= len(o.chunks) {
		return &abci.ApplySnapshotChunkResponse{Result: abci.APPLY_SNAPSHOT_CHUNK_RESULT_ABORT}, nil
	}
	if sum := sha256.Sum256(r.Chunk); !bytes.Equal(sum[:], o.sums[r.Index]) {
		a.log.Warn("a part of a snapshot was not what was offered", "node", r.Sender)
		return &abci.ApplySnapshotChunkResponse{Result: abci.APPLY_SNAPSHOT_CHUNK_RESULT_RETRY, RefetchChunks: []uint32{r.Index}, RejectSenders: []string{r.Sender}}, nil
	}
	o.chunks[r.Index], o.from[r.Index] = r.Chunk, r.Sender
	if slices.ContainsFunc(o.chunks, func(c []byte) bool { return c == nil }) {
		return &abci.ApplySnapshotChunkResponse{Result: abci.APPLY_SNAPSHOT_CHUNK_RESULT_ACCEPT}, nil
	}
	a.offered = nil
	if err := a.restore(o); err != nil {
		a.log.Warn("a snapshot was not the state that the replicas agreed on", "height", o.height, "error", err)
		slices.Sort(o.from)
		return &abci.ApplySnapshotChunkResponse{Result: abci.APPLY_SNAPSHOT_CHUNK_RESULT_REJECT_SNAPSHOT, RejectSenders: slices.Compact(o.from)}, nil
	}
	a.log.Info("the state is that of a snapshot", "height", o.height, "tuples", a.space.Usage().Tuples)
	return &abci.ApplySnapshotChunkResponse{Result: abci.APPLY_SNAPSHOT_CHUNK_RESULT_ACCEPT}, nil
}

// restore makes a snapshot the state, in memory and in the store.
func (a *app) restore(o *offered) error {
	whole := bytes.Join(o.chunks, nil)
	restored, err := space.Restore(a.genesis.config(), whole)
	if err != nil {
		return err
	}
	hash := restored.Hash()
	if !bytes.Equal(hash[:], o.hash) {
		return fmt.Errorf("its hash is %x, and %x was signed", hash, o.hash)
	}
	rows, err := space.Rows(whole)
	if err != nil {
		return err
	}
	at := position{Height: o.height, AppHash: hash[:], Space: hash[:]}
	if err := a.store.replace(rows, at); err != nil {
		return err
	}
	a.space, a.at, a.joining = restored, at, false
	return nil
}

// errJoining is the error for clients before there is a state.
var errJoining = errors.New("this replica takes up the state of the others, and knows nothing yet")

// here fails while there is no state yet.
func (a *app) here() error {
	a.mu.RLock()
	defer a.mu.RUnlock()
	if a.joining {
		return errJoining
	}
	return nil
}
