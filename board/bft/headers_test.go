package bft

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"testing"
	"time"

	cmtversion "github.com/cometbft/cometbft/api/cometbft/version/v1"
	"github.com/cometbft/cometbft/types"
	"github.com/cometbft/cometbft/version"

	"heddle/board/space"
)

func testDoc(t *testing.T) (*types.GenesisDoc, []types.MockPV) {
	t.Helper()
	doc := &types.GenesisDoc{ChainID: "test", GenesisTime: time.Now(), InitialHeight: 1, ConsensusParams: consensusParams(space.DefaultLimits())}
	signers := make([]types.MockPV, 4)
	for i := range signers {
		signers[i] = types.NewMockPV()
		doc.Validators = append(doc.Validators, types.GenesisValidator{PubKey: signers[i].PrivKey.PubKey(), Power: 1})
	}
	if err := doc.ValidateAndComplete(); err != nil {
		t.Fatal(err)
	}
	return doc, signers
}

// Who proposes when has to come out as in a replica that did all blocks.
func TestTurnsToPropose(t *testing.T) {
	doc, _ := testDoc(t)
	h := newHeaders(doc, nil)
	step := h.validators.Copy()
	for height := int64(1); height < 50; height++ {
		got := h.validatorsAt(height)
		for i, v := range step.Validators {
			if got.Validators[i].ProposerPriority != v.ProposerPriority || !bytes.Equal(got.GetProposer().Address, step.GetProposer().Address) {
				t.Fatalf("height %d: %v, want %v", height, got, step)
			}
		}
		step.IncrementProposerPriority(1)
	}
}

// signedBy makes the header of a block, with the signatures of some.
func signedBy(t *testing.T, h *headers, height int64, signers []types.MockPV) *types.SignedHeader {
	t.Helper()
	sum := sha256.Sum256([]byte("something"))
	header := &types.Header{Version: cmtversion.Consensus{Block: version.BlockProtocol, App: appVersion}, ChainID: h.doc.ChainID, Height: height, Time: time.Now(),
		LastBlockID: types.BlockID{Hash: sum[:], PartSetHeader: types.PartSetHeader{Total: 1, Hash: sum[:]}}, LastCommitHash: sum[:], DataHash: sum[:],
		ValidatorsHash: h.validators.Hash(), NextValidatorsHash: h.validators.Hash(), ConsensusHash: h.doc.ConsensusParams.Hash(), AppHash: sum[:],
		LastResultsHash: sum[:], EvidenceHash: sum[:], ProposerAddress: h.validators.Validators[0].Address}
	id := types.BlockID{Hash: header.Hash(), PartSetHeader: types.PartSetHeader{Total: 1, Hash: sum[:]}}
	commit := &types.Commit{Height: height, BlockID: id, Signatures: make([]types.CommitSig, h.validators.Size())}
	for i := range commit.Signatures {
		commit.Signatures[i] = types.NewCommitSigAbsent()
	}
	for _, s := range signers {
		address := s.PrivKey.PubKey().Address()
		i, _ := h.validators.GetByAddress(address)
		vote := &types.Vote{Type: types.PrecommitType, Height: height, BlockID: id, Timestamp: header.Time, ValidatorAddress: address, ValidatorIndex: i}
		raw := vote.ToProto()
		if err := s.SignVote(h.doc.ChainID, raw, false); err != nil {
			t.Fatal(err)
		}
		vote.Signature = raw.Signature
		commit.Signatures[i] = vote.CommitSig()
	}
	return &types.SignedHeader{Header: header, Commit: commit}
}

func TestHeadersOfOthers(t *testing.T) {
	doc, signers := testDoc(t)
	h := newHeaders(doc, nil)
	strangers, _ := testDoc(t)
	for name, c := range map[string]struct {
		header *types.SignedHeader
		want   bool
	}{
		"all signed":          {signedBy(t, h, 7, signers), true},
		"three signed":        {signedBy(t, h, 7, signers[:3]), true},
		"two signed":          {signedBy(t, h, 7, signers[1:3]), false},
		"others signed":       {signedBy(t, newHeaders(strangers, nil), 7, nil), false},
		"of another board":    {func() *types.SignedHeader { s := signedBy(t, h, 7, signers); s.ChainID = "other"; return s }(), false},
		"another state":       {func() *types.SignedHeader { s := signedBy(t, h, 7, signers); s.AppHash = []byte{1}; return s }(), false},
		"another one's votes": {&types.SignedHeader{Header: signedBy(t, h, 7, signers).Header, Commit: signedBy(t, h, 8, signers).Commit}, false},
		"no votes":            {&types.SignedHeader{Header: signedBy(t, h, 7, nil).Header}, false},
		"nothing":             {&types.SignedHeader{}, false},
	} {
		came := make(chan struct{})
		h.known, h.waiting = map[int64]*types.SignedHeader{}, map[int64]chan struct{}{7: came}
		err := h.take(c.header.ToProto())
		if (err == nil) != c.want || (h.known[7] != nil) != c.want {
			t.Errorf("%s: %v", name, err)
		}
	}
	h.known, h.waiting = map[int64]*types.SignedHeader{}, map[int64]chan struct{}{}
	if err := h.take(signedBy(t, h, 9, signers).ToProto()); err != nil || len(h.known) != 0 {
		t.Errorf("unasked: %v, %v", err, h.known)
	}
}

// Whoever offers a snapshot of a block that no right replica has is not waited for.
func TestBlocksThatAreNotThere(t *testing.T) {
	doc, _ := testDoc(t)
	asked := int64(0)
	h := newHeaders(doc, func(height int64) bool { asked = height; return false })
	for _, height := range []uint64{128, 1 << 63} {
		if _, err := h.AppHash(t.Context(), height); err == nil || errors.Is(err, errNoHeader) {
			t.Errorf("block %d: %v", height, err)
		}
	}
	if asked != 130 {
		t.Errorf("block %d was asked for", asked)
	}
	if h.stored(1) != nil {
		t.Error("there is a block before there is a store")
	}
}

// A liar alone does not say how many blocks there are.
func TestReached(t *testing.T) {
	w := newWatch(nil, func() int64 { return 0 }, 1, quiet)
	w.hear("liar", 1<<40)
	w.hear("slow", 7)
	for height, want := range map[int64]bool{7: true, 8: false, 1 << 40: false} {
		if w.reached(height) != want {
			t.Errorf("%d blocks: %v", height, !want)
		}
	}
}
