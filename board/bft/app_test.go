package bft

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	dbm "github.com/cometbft/cometbft-db"
	abci "github.com/cometbft/cometbft/abci/types"

	"heddle/board/space"
	"heddle/identity"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

func someone(t testing.TB) identity.Identity {
	t.Helper()
	id, err := identity.New()
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func testGenesis(t testing.TB) genesis {
	t.Helper()
	g := genesis{Name: space.ID{1}, Limits: space.DefaultLimits()}
	for range 4 {
		g.Replicas = append(g.Replicas, genesisReplica{Key: someone(t).Key(), Node: strings.Repeat("ab", 20)})
	}
	raw, err := json.Marshal(g)
	if err != nil {
		t.Fatal(err)
	}
	if g, err = parseGenesis(raw); err != nil {
		t.Fatal(err)
	}
	return g
}

func testApp(t testing.TB, g genesis, db dbm.DB) *app {
	t.Helper()
	a, err := newApp(g, &store{db}, &snapshots{}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	if a.at.Height == 0 {
		if _, err := a.InitChain(context.Background(), &abci.InitChainRequest{AppStateBytes: g.raw}); err != nil {
			t.Fatal(err)
		}
	}
	return a
}

func put(t testing.TB, g genesis, who identity.Identity, value string, at time.Time) space.SignedOp {
	t.Helper()
	op, err := space.Op{Space: g.Name, Verb: space.Out, Tuple: space.Tuple{space.String("test"), space.String(value)}, Lease: time.Hour}.Sign(who, at)
	if err != nil {
		t.Fatal(err)
	}
	return op
}

// block has the app do operations, as CometBFT would have it, and gives the results.
func block(t testing.TB, a *app, at time.Time, ops ...space.SignedOp) (results []space.Result, appHash []byte) {
	t.Helper()
	request := &abci.FinalizeBlockRequest{Height: a.height() + 1, Time: at}
	for _, op := range ops {
		request.Txs = append(request.Txs, op.Bytes())
	}
	response, err := a.FinalizeBlock(context.Background(), request)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Commit(context.Background(), &abci.CommitRequest{}); err != nil {
		t.Fatal(err)
	}
	for _, r := range response.TxResults {
		result, err := space.DecodeResult(r.Data)
		if err != nil {
			t.Fatal(err)
		}
		results = append(results, result)
	}
	return results, response.AppHash
}

func TestRubbishIsNotVotedFor(t *testing.T) {
	g, who, now := testGenesis(t), someone(t), time.Now()
	a := testApp(t, g, dbm.NewMemDB())
	block(t, a, now)
	good := put(t, g, who, "good", now)
	forged := bytes.Clone(good.Bytes())
	forged[len(forged)-1] ^= 1
	elsewhere := g
	elsewhere.Name = space.ID{2}
	for name, c := range map[string]struct {
		txs  [][]byte
		want bool
	}{
		"nothing":              {nil, true},
		"one":                  {[][]byte{good.Bytes()}, true},
		"no operation":         {[][]byte{good.Bytes(), []byte("rubbish")}, false},
		"forged":               {[][]byte{forged}, false},
		"twice":                {[][]byte{good.Bytes(), good.Bytes()}, false},
		"of another board":     {[][]byte{put(t, elsewhere, who, "x", now).Bytes()}, false},
		"of an hour ago":       {[][]byte{put(t, g, who, "x", now.Add(-time.Hour)).Bytes()}, false},
		"of an hour from now":  {[][]byte{put(t, g, who, "x", now.Add(time.Hour)).Bytes()}, false},
		"two, of the same key": {[][]byte{good.Bytes(), put(t, g, who, "good", now).Bytes()}, true},
	} {
		response, err := a.ProcessProposal(context.Background(), &abci.ProcessProposalRequest{Txs: c.txs, Height: 2, Time: now})
		if got := response.IsAccepted(); err != nil || got != c.want {
			t.Errorf("%s: accepted %v, %v", name, got, err)
		}
		prepared, err := a.PrepareProposal(context.Background(), &abci.PrepareProposalRequest{Txs: c.txs, Height: 2, Time: now, MaxTxBytes: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		response, err = a.ProcessProposal(context.Background(), &abci.ProcessProposalRequest{Txs: prepared.Txs, Height: 2, Time: now})
		if err != nil || !response.IsAccepted() || c.want && len(prepared.Txs) != len(c.txs) {
			t.Errorf("%s: of %d this replica proposes %d: %v, %v", name, len(c.txs), len(prepared.Txs), response, err)
		}
	}
	var many [][]byte
	for range blockOps + 1 {
		many = append(many, put(t, g, who, "many", now).Bytes())
	}
	if response, err := a.ProcessProposal(context.Background(), &abci.ProcessProposalRequest{Txs: many, Time: now}); err != nil || response.IsAccepted() {
		t.Errorf("a block of %d operations: %v, %v", len(many), response, err)
	}
	if most, err := a.PrepareProposal(context.Background(), &abci.PrepareProposalRequest{Txs: many, Time: now, MaxTxBytes: 4 << 20}); err != nil || len(most.Txs) != blockOps {
		t.Errorf("of %d operations this replica proposes %d, %v", len(many), len(most.Txs), err)
	}
	small, err := a.PrepareProposal(context.Background(), &abci.PrepareProposalRequest{Txs: [][]byte{good.Bytes()}, Time: now, MaxTxBytes: 10})
	if err != nil || len(small.Txs) != 0 {
		t.Errorf("a block of 10 bytes has %d operations, %v", len(small.Txs), err)
	}
}

// Each process of a fuzzing run has keys of its own, so what is good is changed here and not in the corpus.
func FuzzProposal(f *testing.F) {
	g, now := testGenesis(f), time.Unix(1e9, 0)
	a := testApp(f, g, dbm.NewMemDB())
	good := put(f, g, someone(f), "good", now).Bytes()
	f.Add(0, byte(0), 0, []byte(nil))
	f.Add(40, byte(1), 0, []byte(nil))
	f.Add(0, byte(0), len(good), []byte("rubbish"))
	f.Fuzz(func(t *testing.T, at int, mask byte, cut int, more []byte) {
		tx := slices.Clone(good)
		tx[uint(at)%uint(len(tx))] ^= mask
		tx = append(tx[uint(cut)%uint(len(tx)+1):], more...)
		response, err := a.ProcessProposal(context.Background(), &abci.ProcessProposalRequest{Txs: [][]byte{tx}, Time: now})
		if err != nil || response.IsAccepted() != bytes.Equal(tx, good) {
			t.Errorf("accepted %v, %v", response.IsAccepted(), err)
		}
		if _, err := a.CheckTx(context.Background(), &abci.CheckTxRequest{Tx: tx, Type: abci.CHECK_TX_TYPE_CHECK}); err != nil {
			t.Error(err)
		}
	})
}

// Two replicas, of which one is started again after each block, agree on all results and hashes.
func TestRestartKeepsTheState(t *testing.T) {
	g, who, now, db := testGenesis(t), someone(t), time.Now(), dbm.NewMemDB()
	steady, restarted := testApp(t, g, dbm.NewMemDB()), testApp(t, g, db)
	var hashes []string
	for i := range int(checkpoint) + 2 {
		at := now.Add(time.Duration(i) * time.Second)
		var ops []space.SignedOp
		if i%3 == 0 {
			ops = append(ops, put(t, g, who, "value", at))
		}
		want, wantHash := block(t, steady, at, ops...)
		got, gotHash := block(t, restarted, at, ops...)
		if len(want) != len(ops) || !slices.EqualFunc(want, got, func(a, b space.Result) bool { return bytes.Equal(a.Encode(), b.Encode()) }) || !bytes.Equal(wantHash, gotHash) {
			t.Fatalf("block %d: %v and %v, %x and %x", i+1, want, got, wantHash, gotHash)
		}
		hashes = append(hashes, string(gotHash))
		restarted = testApp(t, g, db)
		if restarted.at.Height != int64(i)+1 || !bytes.Equal(restarted.at.AppHash, gotHash) || restarted.space.Hash() != steady.space.Hash() {
			t.Fatalf("after block %d it is at %+v", i+1, restarted.at)
		}
	}
	if got := len(slices.Compact(hashes)); got != 2 {
		t.Errorf("the header's hash took %d values in %d blocks", got, len(hashes))
	}
	if used := restarted.space.Usage(); used.Tuples != (int(checkpoint)+2+2)/3 {
		t.Errorf("there are %d tuples", used.Tuples)
	}
}

func TestDamagedStoreIsRefused(t *testing.T) {
	g, now, db := testGenesis(t), time.Now(), dbm.NewMemDB()
	a := testApp(t, g, db)
	block(t, a, now, put(t, g, someone(t), "one", now), put(t, g, someone(t), "two", now))
	all, err := db.Iterator([]byte("rt"), []byte("ru"))
	if err != nil || !all.Valid() {
		t.Fatal("the store has no tuple", err)
	}
	key := bytes.Clone(all.Key())
	_ = all.Close()
	if err := db.Delete(key); err != nil {
		t.Fatal(err)
	}
	if _, err := newApp(g, &store{db}, &snapshots{}, quiet); err == nil || !strings.Contains(err.Error(), "does not hold what was written") {
		t.Errorf("a tuple is gone: %v", err)
	}
}

func TestOnlyReplicasMayBePeers(t *testing.T) {
	a := testApp(t, testGenesis(t), dbm.NewMemDB())
	for path, want := range map[string]bool{
		"/p2p/filter/id/" + strings.Repeat("ab", 20): true,
		"/p2p/filter/id/" + strings.Repeat("cd", 20): false,
		"/p2p/filter/addr/192.0.2.1:1":               true, // its key is asked next
	} {
		if r, err := a.Query(context.Background(), &abci.QueryRequest{Path: path}); err != nil || r.IsOK() != want {
			t.Errorf("%s: %v, %v", path, r, err)
		}
	}
}

func TestWhatMayWait(t *testing.T) {
	g, who, now := testGenesis(t), someone(t), time.Now()
	a := testApp(t, g, dbm.NewMemDB())
	check := func(op space.SignedOp, kind abci.CheckTxType) uint32 {
		r, err := a.CheckTx(context.Background(), &abci.CheckTxRequest{Tx: op.Bytes(), Type: kind})
		if err != nil {
			t.Fatal(err)
		}
		return r.Code
	}
	first := put(t, g, who, "first", now)
	if got := check(first, abci.CHECK_TX_TYPE_CHECK); got != 0 {
		t.Errorf("the first: %d", got)
	}
	old := put(t, g, who, "old", now.Add(-time.Hour))
	if got := space.Status(check(old, abci.CHECK_TX_TYPE_CHECK)); got != space.Clock {
		t.Errorf("of an hour ago: %v", got)
	}
	for range poolAuthorOps - 1 {
		if got := check(put(t, g, who, "more", now), abci.CHECK_TX_TYPE_CHECK); got != 0 {
			t.Fatalf("more: %d", got)
		}
	}
	last := put(t, g, who, "last", now)
	if got := space.Status(check(last, abci.CHECK_TX_TYPE_CHECK)); got != space.Quota {
		t.Errorf("one too many: %v", got)
	}
	if got := check(put(t, g, someone(t), "other", now), abci.CHECK_TX_TYPE_CHECK); got != 0 {
		t.Errorf("somebody else's: %d", got)
	}
	block(t, a, now, first)
	if got := check(first, abci.CHECK_TX_TYPE_CHECK); got != codeDone {
		t.Errorf("one that was done: %d", got)
	}
	if got := check(last, abci.CHECK_TX_TYPE_CHECK); got != 0 {
		t.Errorf("once there is room: %d", got)
	}
	if got := check(last, abci.CHECK_TX_TYPE_RECHECK); got != 0 {
		t.Errorf("looked at again: %d", got)
	}
}

// What the mempool refused, and never says so, is dropped in the end.
func TestPoolForgets(t *testing.T) {
	g, who, now := testGenesis(t), someone(t), time.Now()
	p := newPool(g.Limits.Slack)
	for range poolAuthorOps {
		op := put(t, g, who, "x", now)
		if r := p.admit(op.Bytes(), op, now); r.Status != space.OK {
			t.Fatal(r)
		}
	}
	next := put(t, g, who, "x", now)
	if r := p.admit(next.Bytes(), next, now); r.Status != space.Quota {
		t.Errorf("too many: %v", r)
	}
	if r := p.admit(next.Bytes(), next, now.Add(g.Limits.Slack+time.Second)); r.Status != space.OK {
		t.Errorf("later: %v", r)
	}
	p.remove(next.Bytes())
	if len(p.entries) != 0 || len(p.authors) != 0 || p.bytes != 0 {
		t.Errorf("%d entries, %d authors, %d bytes are left", len(p.entries), len(p.authors), p.bytes)
	}
}
