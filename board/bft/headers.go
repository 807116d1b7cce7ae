package bft

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	cmtstate "github.com/cometbft/cometbft/api/cometbft/state/v1"
	cmtproto "github.com/cometbft/cometbft/api/cometbft/types/v1"
	"github.com/cometbft/cometbft/p2p"
	"github.com/cometbft/cometbft/p2p/conn"
	sm "github.com/cometbft/cometbft/state"
	"github.com/cometbft/cometbft/types"
	"github.com/cometbft/cometbft/version"
	gogotypes "github.com/cosmos/gogoproto/types"

	"heddle/internal/netutil"
)

// A replica that restores a snapshot needs a header that two thirds of the validators signed. The validators never change,
// so any peer can give it. CometBFT's light client would need two servers and a trusted header from the user.
const (
	askHeaderChannel = 0x7d
	headerChannel    = 0x7c
	maxHeader        = 64 << 10        // bytes, with all signatures
	headerPatience   = 2 * time.Second // per peer
)

var errNoHeader = errors.New("no replica gave the block's header with the signatures of two thirds")

// headers is a p2p.Reactor that exchanges headers, and a statesync.StateProvider.
type headers struct {
	p2p.BaseReactor
	doc        *types.GenesisDoc
	validators *types.ValidatorSet     // at the first block
	reached    func(height int64) bool // does a correct replica say that it has this block?

	mu      sync.Mutex
	own     blocks // nil until the node exists
	known   map[int64]*types.SignedHeader
	waiting map[int64]chan struct{} // closed once known
}

// blocks is the needed part of CometBFT's block store.
type blocks interface {
	LoadBlockMeta(height int64) *types.BlockMeta
	LoadBlockCommit(height int64) *types.Commit
	LoadSeenCommit(height int64) *types.Commit
}

func newHeaders(doc *types.GenesisDoc, reached func(int64) bool) *headers {
	validators := make([]*types.Validator, 0, len(doc.Validators))
	for _, v := range doc.Validators {
		validators = append(validators, types.NewValidator(v.PubKey, v.Power))
	}
	h := &headers{doc: doc, validators: types.NewValidatorSet(validators), reached: reached,
		known: map[int64]*types.SignedHeader{}, waiting: map[int64]chan struct{}{}}
	h.BaseReactor = *p2p.NewBaseReactor("HEADERS", h)
	return h
}

func (h *headers) serve(own blocks) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.own = own
}

func (h *headers) GetChannels() []*conn.ChannelDescriptor {
	return []*conn.ChannelDescriptor{
		{ID: askHeaderChannel, Priority: 2, SendQueueCapacity: 16, RecvMessageCapacity: 64, MessageType: &gogotypes.Int64Value{}},
		{ID: headerChannel, Priority: 2, SendQueueCapacity: 16, RecvMessageCapacity: maxHeader, MessageType: &cmtproto.SignedHeader{}},
	}
}

func (h *headers) Receive(e p2p.Envelope) {
	switch m := e.Message.(type) {
	case *gogotypes.Int64Value:
		if found := h.stored(m.Value); found != nil {
			e.Src.TrySend(p2p.Envelope{ChannelID: headerChannel, Message: found.ToProto()})
		}
	case *cmtproto.SignedHeader:
		if err := h.take(m); err != nil {
			h.Switch.StopPeerForError(e.Src, err)
		}
	}
}

// stored returns a header from this replica's own store.
func (h *headers) stored(height int64) *types.SignedHeader {
	h.mu.Lock()
	own := h.own
	h.mu.Unlock()
	if own == nil || height < 1 {
		return nil
	}
	meta, commit := own.LoadBlockMeta(height), own.LoadBlockCommit(height)
	if commit == nil {
		commit = own.LoadSeenCommit(height)
	}
	if meta == nil || commit == nil {
		return nil
	}
	return &types.SignedHeader{Header: &meta.Header, Commit: commit}
}

// take stores a requested header that two thirds of the validators signed, and fails for others.
func (h *headers) take(m *cmtproto.SignedHeader) error {
	signed, err := types.SignedHeaderFromProto(m)
	if err != nil {
		return err
	}
	if signed.Header == nil {
		return errors.New("it sent no header")
	}
	h.mu.Lock()
	came := h.waiting[signed.Height]
	h.mu.Unlock()
	if came == nil {
		return nil // late or unsolicited
	}
	if err := h.check(signed); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.known[signed.Height] == nil {
		h.known[signed.Height] = signed
		close(came)
	}
	return nil
}

func (h *headers) check(signed *types.SignedHeader) error {
	if err := signed.ValidateBasic(h.doc.ChainID); err != nil {
		return err
	}
	if !bytes.Equal(signed.ValidatorsHash, h.validators.Hash()) || !bytes.Equal(signed.ConsensusHash, h.doc.ConsensusParams.Hash()) {
		return errors.New("the header is of other validators or parameters than the genesis")
	}
	return h.validators.VerifyCommitLight(h.doc.ChainID, signed.Commit.BlockID, signed.Height, signed.Commit)
}

// header asks the other replicas for a header, one after another.
func (h *headers) header(ctx context.Context, height int64) (*types.SignedHeader, error) {
	h.mu.Lock()
	came := h.waiting[height]
	if came == nil {
		came = make(chan struct{})
		h.waiting[height] = came
	}
	h.mu.Unlock()
	for {
		for _, peer := range h.Switch.Peers().Copy() {
			peer.TrySend(p2p.Envelope{ChannelID: askHeaderChannel, Message: &gogotypes.Int64Value{Value: height}})
			select {
			case <-came:
				h.mu.Lock()
				defer h.mu.Unlock()
				return h.known[height], nil
			case <-time.After(headerPatience):
			case <-ctx.Done():
				return nil, fmt.Errorf("%w: block %d", errNoHeader, height)
			}
		}
		if netutil.Sleep(ctx, headerPatience) != nil {
			return nil, fmt.Errorf("%w: block %d", errNoHeader, height)
		}
	}
}

// AppHash implements statesync.StateProvider. The hash after a block is in the next block's header.
func (h *headers) AppHash(ctx context.Context, height uint64) ([]byte, error) {
	if height > 1<<62 || !h.reached(int64(height)+2) {
		return nil, fmt.Errorf("no right replica has block %d", height)
	}
	next, err := h.header(ctx, int64(height)+1)
	if err != nil {
		return nil, err
	}
	return next.AppHash, nil
}

func (h *headers) Commit(ctx context.Context, height uint64) (*types.Commit, error) {
	signed, err := h.header(ctx, int64(height))
	if err != nil {
		return nil, err
	}
	return signed.Commit, nil
}

// State implements statesync.StateProvider. It returns CometBFT's state after a block.
func (h *headers) State(ctx context.Context, height uint64) (sm.State, error) {
	at := int64(height)
	last, err := h.header(ctx, at)
	if err != nil {
		return sm.State{}, err
	}
	next, err := h.header(ctx, at+1)
	if err != nil {
		return sm.State{}, err
	}
	return sm.State{
		Version:                          cmtstate.Version{Consensus: next.Version, Software: version.CMTSemVer},
		ChainID:                          h.doc.ChainID,
		InitialHeight:                    h.doc.InitialHeight,
		LastBlockHeight:                  at,
		LastBlockID:                      last.Commit.BlockID,
		LastBlockTime:                    last.Time,
		LastValidators:                   h.validatorsAt(at),
		Validators:                       h.validatorsAt(at + 1),
		NextValidators:                   h.validatorsAt(at + 2),
		LastHeightValidatorsChanged:      at + 2,
		ConsensusParams:                  *h.doc.ConsensusParams,
		LastHeightConsensusParamsChanged: at + 1,
		LastResultsHash:                  next.LastResultsHash,
		AppHash:                          next.AppHash,
	}, nil
}

// validatorsAt returns the validators with the proposer turns at a height. Turns repeat, since all have equal power.
func (h *headers) validatorsAt(height int64) *types.ValidatorSet {
	turns := (height - h.doc.InitialHeight) % int64(h.validators.Size())
	if turns == 0 {
		return h.validators.Copy()
	}
	return h.validators.CopyIncrementProposerPriority(int32(turns))
}
