package bft

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	dbm "github.com/cometbft/cometbft-db"
	abci "github.com/cometbft/cometbft/abci/types"
	cmtconfig "github.com/cometbft/cometbft/config"
	"github.com/cometbft/cometbft/node"
	"github.com/cometbft/cometbft/p2p"
	"github.com/cometbft/cometbft/proxy"
	"github.com/cometbft/cometbft/types"

	"heddle/board/space"
	"heddle/path"
)

// consensusParams returns the parameters in the genesis. The space's clock is the time of the proposer. The others vote for
// it only if it is within Precision and MessageDelay of their clocks.
func consensusParams(limits space.Limits) *types.ConsensusParams {
	p := types.DefaultConsensusParams()
	p.Block.MaxBytes = 4 << 20
	p.Feature.PbtsEnableHeight = 1
	p.Synchrony.Precision = 500 * time.Millisecond
	p.Synchrony.MessageDelay = 2 * time.Second // CometBFT adds a tenth in each further round
	p.Evidence.MaxAgeNumBlocks = retain
	p.Version.App = appVersion
	return p
}

// config tunes CometBFT for rare, fast writes: no empty blocks, no wait for all votes, frequent gossip.
func (h *home) config(joining bool) *cmtconfig.Config {
	c := cmtconfig.DefaultConfig()
	c.SetRoot(h.dir)
	c.Moniker = fmt.Sprintf("replica-%d", h.settings.Index)
	c.DBBackend = string(dbm.PebbleDBBackend)
	c.FilterPeers = true
	c.RPC.ListenAddress = ""
	c.TxIndex.Indexer = "null"
	c.Storage.DiscardABCIResponses = true
	c.P2P.ListenAddress = "tcp://" + h.settings.ListenPeers
	c.P2P.ExternalAddress = h.settings.Peers[h.settings.Index].Address
	c.P2P.AddrBook = filepath.Join(dirData, "addrbook.json") // written at start; the default directory does not exist
	c.P2P.PexReactor, c.P2P.AddrBookStrict, c.P2P.AllowDuplicateIP = false, false, true
	c.P2P.FlushThrottleTimeout = time.Millisecond
	c.P2P.DialTimeout, c.P2P.HandshakeTimeout = 2*time.Second, 5*time.Second
	c.Mempool.MaxTxBytes, c.Mempool.MaxTxsBytes = space.MaxOp, poolBytes
	c.Consensus.CreateEmptyBlocks = false
	c.Consensus.TimeoutCommit = 0
	c.Consensus.TimeoutPropose, c.Consensus.TimeoutProposeDelta = 500*time.Millisecond, 250*time.Millisecond
	c.Consensus.TimeoutPrevote, c.Consensus.TimeoutPrevoteDelta = 200*time.Millisecond, 200*time.Millisecond
	c.Consensus.TimeoutPrecommit, c.Consensus.TimeoutPrecommitDelta = 200*time.Millisecond, 200*time.Millisecond
	c.Consensus.PeerGossipSleepDuration = 10 * time.Millisecond
	c.Consensus.PeerQueryMaj23SleepDuration = 500 * time.Millisecond
	c.StateSync.Enable, c.StateSync.DiscoveryTime, c.StateSync.TempDir = joining, 5*time.Second, filepath.Join(h.dir, dirData)
	return c
}

type replica struct {
	home    *home
	app     *app
	watch   *watch
	headers *headers
	node    *node.Node
	db      dbm.DB
}

// wrap lets tests replace the application by a faulty one.
var wrap = func(a *app) abci.Application { return a }

// startReplica loads a home and joins the others. It calls fail if the replica cannot continue.
func startReplica(ctx context.Context, h *home, fromSnapshot bool, log *slog.Logger, fail context.CancelCauseFunc) (*replica, error) {
	db, err := dbm.NewDB("board", dbm.PebbleDBBackend, filepath.Join(h.dir, dirData))
	if err != nil {
		return nil, &path.Error{What: "the replica's store", Why: "cannot be opened", Err: err, Hint: "does another process run this replica?"}
	}
	r := &replica{home: h, db: db}
	if err = r.open(fromSnapshot, log); err == nil {
		err = r.start(ctx, log, fail)
	}
	if err != nil {
		_ = db.Close()
		return nil, err
	}
	return r, nil
}

// open loads the store, or prepares to restore a snapshot.
func (r *replica) open(fromSnapshot bool, log *slog.Logger) error {
	data := filepath.Join(r.home.dir, dirData)
	snaps, err := openSnapshots(filepath.Join(data, dirSnapshots), log)
	if err != nil {
		return &path.Error{What: "the replica's snapshots", Why: "cannot be read", Err: err}
	}
	if r.app, err = newApp(r.home.genesis, &store{r.db}, snaps, log); err != nil {
		return err
	}
	if !fromSnapshot {
		return nil
	}
	if r.app.at.Height > 0 {
		return &path.Error{What: data, Why: fmt.Sprintf("it holds the state of block %d, and no snapshot is taken up over one", r.app.at.Height),
			Hint: "go on from there without --from-snapshot, or move that directory away, and nothing else of the home"}
	}
	r.app.joining = true
	log.Info("the state of the others is taken up, once they offer a snapshot")
	return nil
}

func (r *replica) start(ctx context.Context, log *slog.Logger, fail context.CancelCauseFunc) (err error) {
	h := r.home
	f, _ := faults(len(h.genesis.Replicas)) // checked in parseGenesis
	r.watch = newWatch(h.settings.Peers[h.settings.Index+1:], r.app.height, f, log)
	r.headers = newHeaders(h.doc, r.watch.reached)
	sum := node.ChecksummedGenesisDoc{GenesisDoc: h.doc, Sha256Checksum: h.sum[:]}
	r.node, err = node.NewNode(ctx, h.config(r.app.joining), h.validator, h.node, proxy.NewConnSyncLocalClientCreator(wrap(r.app)),
		func() (node.ChecksummedGenesisDoc, error) { return sum, nil }, cmtconfig.DefaultDBProvider,
		node.DefaultMetricsProvider(cmtconfig.DefaultInstrumentationConfig()), logger{log, fail}, node.CustomReactors(map[string]p2p.Reactor{"WATCH": r.watch, "HEADERS": r.headers}), node.StateProvider(r.headers))
	if err != nil {
		return fmt.Errorf("start CometBFT: %w", err)
	}
	r.headers.serve(r.node.BlockStore())
	if err := r.node.Start(); err != nil {
		return fmt.Errorf("start CometBFT: %w", err)
	}
	r.watch.begin()
	return nil
}

// stop ends the replica. Answered operations are never lost.
func (r *replica) stop() {
	if r.node.Stop() == nil {
		r.node.Wait()
	}
	r.app.snapshots.stop()
	_ = r.db.Close()
}
