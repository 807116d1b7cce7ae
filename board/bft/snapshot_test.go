package bft

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	dbm "github.com/cometbft/cometbft-db"
	abci "github.com/cometbft/cometbft/abci/types"

	"heddle/board/space"
)

// everyCheckpoint has checkpoints near each other, and a snapshot made at each.
func everyCheckpoint(t *testing.T) {
	t.Helper()
	each, every := checkpoint, snapshotEvery
	checkpoint, snapshotEvery = 64, 64
	t.Cleanup(func() { checkpoint, snapshotEvery = each, every })
}

// withSnapshots is an app whose snapshots lie in a directory.
func withSnapshots(t *testing.T, g genesis, dir string) *app {
	t.Helper()
	snaps, err := openSnapshots(dir, quiet)
	if err != nil {
		t.Fatal(err)
	}
	a := testApp(t, g, dbm.NewMemDB())
	a.snapshots = snaps
	return a
}

// filled is an app with so many tuples of a size, and its snapshot.
func filled(t *testing.T, g genesis, dir string, tuples, size int) (*app, *abci.Snapshot) {
	t.Helper()
	who, now := someone(t), time.Now()
	a := withSnapshots(t, g, dir)
	for i := range int(checkpoint) + 2 {
		at := now.Add(time.Duration(i) * time.Millisecond)
		var ops []space.SignedOp
		if i < tuples {
			ops = append(ops, put(t, g, who, strings.Repeat("x", size), at))
		}
		block(t, a, at, ops...)
		a.snapshots.writing.Wait()
		list, err := a.ListSnapshots(context.Background(), nil)
		if want := i+1 == int(checkpoint)+2; err != nil || len(list.Snapshots) == 1 != want {
			t.Fatalf("after block %d: %v, %v", i+1, list, err)
		} else if want {
			return a, list.Snapshots[0]
		}
	}
	panic("unreachable")
}

func loadChunk(t *testing.T, a *app, s *abci.Snapshot, i uint32) []byte {
	t.Helper()
	r, err := a.LoadSnapshotChunk(context.Background(), &abci.LoadSnapshotChunkRequest{Height: s.Height, Format: s.Format, Chunk: i})
	if err != nil {
		t.Fatal(err)
	}
	return r.Chunk
}

func TestSnapshotIsTakenUp(t *testing.T) {
	everyCheckpoint(t)
	g, dir := testGenesis(t), t.TempDir()
	from, s := filled(t, g, dir, 60, 50_000)
	if s.Height != uint64(checkpoint) || s.Chunks < 3 {
		t.Fatalf("%+v", s)
	}
	hash := from.at.AppHash // of the checkpoint
	db := dbm.NewMemDB()
	to := testApp(t, g, db)
	block(t, to, time.Now(), put(t, g, someone(t), "what it had before", time.Now()))
	to.joining = true
	if offer, err := to.OfferSnapshot(context.Background(), &abci.OfferSnapshotRequest{Snapshot: s, AppHash: hash}); err != nil || offer.Result != abci.OFFER_SNAPSHOT_RESULT_ACCEPT {
		t.Fatal(offer, err)
	}
	for i := range s.Chunks {
		if to.here() == nil {
			t.Fatal("it knows something before all is there")
		}
		index := s.Chunks - 1 - i // in any order
		bad := append(loadChunk(t, from, s, index), 1)
		r, err := to.ApplySnapshotChunk(context.Background(), &abci.ApplySnapshotChunkRequest{Index: index, Chunk: bad, Sender: "liar"})
		if err != nil || r.Result != abci.APPLY_SNAPSHOT_CHUNK_RESULT_RETRY || !slices.Equal(r.RejectSenders, []string{"liar"}) || !slices.Equal(r.RefetchChunks, []uint32{index}) {
			t.Fatalf("a part that was changed: %+v, %v", r, err)
		}
		r, err = to.ApplySnapshotChunk(context.Background(), &abci.ApplySnapshotChunkRequest{Index: index, Chunk: loadChunk(t, from, s, index), Sender: "one"})
		if err != nil || r.Result != abci.APPLY_SNAPSHOT_CHUNK_RESULT_ACCEPT {
			t.Fatalf("part %d: %+v, %v", index, r, err)
		}
	}
	for name, a := range map[string]*app{"at once": to, "started again": testApp(t, g, db)} {
		info, err := a.Info(context.Background(), nil)
		if used := a.space.Usage(); err != nil || info.LastBlockHeight != checkpoint || !bytes.Equal(info.LastBlockAppHash, hash) || used.Tuples != 60 || a.here() != nil {
			t.Errorf("%s: %+v, %+v, %v", name, info, used, err)
		}
	}
	at, next := time.Now(), put(t, g, someone(t), "next", time.Now())
	block(t, to, at) // the two that the other has
	block(t, to, at)
	_, got := block(t, to, at, next)
	_, want := block(t, from, at, next)
	if to.space.Hash() != from.space.Hash() || !bytes.Equal(got, want) {
		t.Error("from there on they differ")
	}
}

func TestSnapshotsThatAreRefused(t *testing.T) {
	everyCheckpoint(t)
	g := testGenesis(t)
	from, good := filled(t, g, t.TempDir(), 3, 10)
	hash := from.at.AppHash
	for name, c := range map[string]struct {
		change func(*abci.OfferSnapshotRequest)
		want   abci.OfferSnapshotResult
	}{
		"none":           {func(r *abci.OfferSnapshotRequest) { r.Snapshot = nil }, abci.OFFER_SNAPSHOT_RESULT_REJECT},
		"no checkpoint":  {func(r *abci.OfferSnapshotRequest) { r.Snapshot.Height++ }, abci.OFFER_SNAPSHOT_RESULT_REJECT},
		"beyond numbers": {func(r *abci.OfferSnapshotRequest) { r.Snapshot.Height = 1 << 63 }, abci.OFFER_SNAPSHOT_RESULT_REJECT},
		"format":         {func(r *abci.OfferSnapshotRequest) { r.Snapshot.Format++ }, abci.OFFER_SNAPSHOT_RESULT_REJECT_FORMAT},
		"no chunks":      {func(r *abci.OfferSnapshotRequest) { r.Snapshot.Chunks = 0 }, abci.OFFER_SNAPSHOT_RESULT_REJECT_SENDER},
		"no sums":        {func(r *abci.OfferSnapshotRequest) { r.Snapshot.Metadata = nil }, abci.OFFER_SNAPSHOT_RESULT_REJECT_SENDER},
		"too large": {func(r *abci.OfferSnapshotRequest) {
			r.Snapshot.Chunks, r.Snapshot.Metadata = 1<<20, make([]byte, 32<<20)
		}, abci.OFFER_SNAPSHOT_RESULT_REJECT_SENDER},
	} {
		s := *good
		r := &abci.OfferSnapshotRequest{Snapshot: &s, AppHash: hash}
		c.change(r)
		if got, err := testApp(t, g, dbm.NewMemDB()).OfferSnapshot(context.Background(), r); err != nil || got.Result != c.want {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	to := testApp(t, g, dbm.NewMemDB())
	chunk := &abci.ApplySnapshotChunkRequest{Chunk: loadChunk(t, from, good, 0), Sender: "one"}
	if r, err := to.ApplySnapshotChunk(context.Background(), chunk); err != nil || r.Result != abci.APPLY_SNAPSHOT_CHUNK_RESULT_ABORT {
		t.Errorf("a part that nobody offered: %v, %v", r, err)
	}
	var other bytes.Buffer
	w := space.NewSnapshotWriter(&other)
	for _, row := range testApp(t, g, dbm.NewMemDB()).space.Changes() {
		_ = w.Row(row.Key, row.Value) // Flush gives its error
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"another state": other.Bytes(), "rubbish": []byte("rubbish"), "one tuple less": chunk.Chunk[:len(chunk.Chunk)-1]} {
		sum := sha256.Sum256(content)
		s := &abci.Snapshot{Height: uint64(checkpoint), Format: snapshotFormat, Chunks: 1, Metadata: sum[:]}
		if r, err := to.OfferSnapshot(context.Background(), &abci.OfferSnapshotRequest{Snapshot: s, AppHash: hash}); err != nil || r.Result != abci.OFFER_SNAPSHOT_RESULT_ACCEPT {
			t.Fatal(r, err)
		}
		r, err := to.ApplySnapshotChunk(context.Background(), &abci.ApplySnapshotChunkRequest{Chunk: content, Sender: "liar"})
		if err != nil || r.Result != abci.APPLY_SNAPSHOT_CHUNK_RESULT_REJECT_SNAPSHOT || !slices.Equal(r.RejectSenders, []string{"liar"}) || to.at.Height != 0 || to.space.Usage().Tuples != 0 {
			t.Errorf("%s: %+v, %v; at %+v", name, r, err, to.at)
		}
	}
	for name, s := range map[string]abci.Snapshot{"height": {Height: 1, Format: 1}, "format": {Height: uint64(checkpoint), Format: 9}, "far": {Height: 1 << 63, Format: 1}} {
		if c := loadChunk(t, from, &s, 0); c != nil {
			t.Errorf("%s: %d bytes of what is not there", name, len(c))
		}
	}
}

func TestSnapshotFiles(t *testing.T) {
	everyCheckpoint(t)
	g, dir := testGenesis(t), t.TempDir()
	a, first := filled(t, g, dir, 3, 10)
	if err := os.WriteFile(filepath.Join(dir, "999.half"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	again, err := openSnapshots(dir, quiet)
	if err != nil || len(again.list()) != 1 || !bytes.Equal(again.list()[0].hash(), first.Hash) {
		t.Fatalf("read again: %+v, %v", again, err)
	}
	for range 2 * checkpoint {
		block(t, a, time.Now())
		a.snapshots.writing.Wait()
	}
	var names []string
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if want := []string{fmt.Sprint(2 * checkpoint), fmt.Sprint(3 * checkpoint)}; err != nil || !slices.Equal(names, want) {
		t.Errorf("there are %v, and should be %v: %v", names, want, err)
	}
	a.snapshots.stop()
	for range checkpoint {
		block(t, a, time.Now())
	}
	if got := len(a.snapshots.list()); got != 2 || a.snapshots.list()[1].height != 3*checkpoint {
		t.Errorf("after its end it writes on: %+v", a.snapshots.list())
	}
}

// A replica without anything takes up a snapshot, and then counts as a replica.
func TestJoinsBySnapshot(t *testing.T) {
	t.Setenv(replicaSnapshots, "many")
	f := newFleet(t, loopback(t), here)
	f.startAll()
	u := f.user(30 * time.Second)
	u.mustPut("first")
	f.kill(3)
	if err := os.RemoveAll(filepath.Join(f.home(3), dirData)); err != nil {
		t.Fatal(err)
	}
	for i := 0; ; i++ {
		u.mustPut(fmt.Sprint(i))
		if _, detail, err := askStatus(t.Context(), f.home(0), nil); err != nil {
			t.Fatal(err)
		} else if detail.Height >= 16+3 {
			break
		}
	}
	f.start(3, "join")
	const taken = "the state is that of a snapshot"
	if _, detail, err := askStatus(t.Context(), f.home(3), nil); err != nil || !detail.Joining && f.logged(taken, 1) == 0 {
		t.Errorf("before it has a state: %+v, %v", detail, err)
	}
	u.check() // it says nothing wrong meanwhile
	f.caughtUp(3)
	if f.logged(taken, 1) == 0 {
		t.Fatalf("it did not take up a snapshot:\n%s", tail(f.running[3].log.String()))
	}
	f.kill(0)
	for i := range 8 { // each of the three proposes, and all must vote
		u.putUntil(fmt.Sprintf("after-%d", i), 3*time.Minute)
	}
	u.check()
	f.kill(3)
	f.start(3, "")
	u.putUntil("last", 3*time.Minute) // it needs the one that was just started
	u.check()
	f.caughtUpWith(3, 2)
	f.kill(3)
	if err := f.startLater(3, "join")(); err == nil {
		t.Error("it would take up a snapshot over a state")
	} else if !strings.Contains(err.Error(), "no snapshot is taken up over one") {
		t.Error(err)
	}
}
