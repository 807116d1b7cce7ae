package bft

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"time"

	"github.com/cometbft/cometbft/mempool"
	"github.com/cometbft/cometbft/p2p"

	"heddle/board"
	"heddle/board/space"
	"heddle/identity"
	"heddle/path"
)

const (
	patience   = 15 * time.Second // until an operation is in a block; the client may retry
	behind     = 5 * time.Second  // a read waits this long for writes that its reader knows of
	maxWaiting = 4096
)

// Options configure [Run].
type Options struct {
	Home string // the directory of one replica, made by [Create]
	Log  *slog.Logger
	// FromSnapshot makes a replica without blocks restore the others' state instead of replaying all blocks.
	FromSnapshot bool
	// Ready is called with the client address once clients can connect.
	Ready func(net.Addr)
}

// Run runs a replica until ctx ends or the replica cannot continue. Answered operations survive a restart.
func Run(ctx context.Context, o Options) error {
	h, err := openHome(o.Home)
	if err != nil {
		return err
	}
	listener, err := net.Listen(path.Family("tcp", h.settings.Listen), h.settings.Listen)
	if err != nil {
		return &path.Error{What: "clients' address " + h.settings.Listen, Why: "cannot be listened at", Err: err, Hint: "change listen in " + fileReplica}
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	r, err := startReplica(ctx, h, o.FromSnapshot, o.Log, stop)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	defer r.stop()
	if o.Ready != nil {
		o.Ready(listener.Addr())
	}
	err = board.Serve(ctx, board.ServeOptions{Listener: listener, Identity: h.identity, Backend: offer(r), Member: r.member, Log: o.Log})
	if failed, ok := errors.AsType[*path.Error](context.Cause(ctx)); ok {
		return errors.Join(failed, err)
	}
	return err
}

// offer lets tests replace the backend by a lying one.
var offer = func(r *replica) board.Backend { return r }

func failure(why string) error {
	return &path.Error{What: "the replica stopped", Why: why, Hint: "see its log, and whether its disk is full; the others go on without it"}
}

// member admits the members of the genesis, and the replicas for their status.
func (r *replica) member(who identity.Key) bool {
	r.app.mu.RLock()
	defer r.app.mu.RUnlock()
	return r.app.space.Member(who) || slices.ContainsFunc(r.home.genesis.Replicas, func(other genesisReplica) bool { return other.Key == who })
}

// Apply implements [board.Backend]. This replica waits for a tuple, but all replicas decide who takes it, so that replicas
// whose waits end at different moments give one answer.
func (r *replica) Apply(ctx context.Context, op space.SignedOp, wait time.Duration) (space.Result, error) {
	if err := r.app.here(); err != nil {
		return space.Result{}, err
	}
	if o := op.Op(); o.Verb == space.Inp && wait > 0 {
		err := r.app.until(ctx, wait, func(s *space.Space, now time.Time) bool {
			_, done := s.Remembered(op.ID())
			return done || s.Check(now, op).Status != space.OK || s.Takeable(now, o.Author, o.Template)
		})
		if err != nil {
			return space.Result{}, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return r.agree(ctx, op)
}

// agree submits an operation to all replicas and returns its result once it is committed.
func (r *replica) agree(ctx context.Context, op space.SignedOp) (space.Result, error) {
	result, known, later := r.app.await(op)
	if known {
		return result, nil
	}
	defer r.app.giveUp(op.ID(), later)
	answer, err := r.node.Mempool().CheckTx(op.Bytes(), "")
	switch {
	case errors.Is(err, mempool.ErrTxInCache): // another replica has sent it here
	case err != nil:
		return space.Result{}, &path.Error{What: "the replica", Why: "takes no operation now", Err: err, Hint: "try again in a moment"}
	default:
		answer.Wait()
		if checked := answer.Response.GetCheckTx(); checked.Code != 0 && checked.Code != codeDone {
			return r.app.refusal(space.Result{Status: space.Status(checked.Code), Detail: checked.Log}), nil
		}
	}
	if result, done := r.app.remembered(op.ID()); done { // a block came between the two looks
		return result, nil
	}
	select {
	case result := <-later:
		return result, nil
	case <-ctx.Done():
		return space.Result{}, &path.Error{What: "the replica", Why: "the replicas did not agree in time", Err: ctx.Err(),
			Hint: "more of them than may lie are down or apart; the operation may yet be done"}
	}
}

// Read implements [board.Backend], from this replica's state.
func (r *replica) Read(ctx context.Context, reader identity.Key, q space.Query, wait time.Duration) (space.Result, error) {
	if err := r.app.here(); err != nil {
		return space.Result{}, err
	}
	if err := r.app.until(ctx, max(wait, behind), func(s *space.Space, _ time.Time) bool { return s.Usage().Version >= q.Since }); err != nil {
		return space.Result{}, err
	}
	if wait > 0 {
		err := r.app.until(ctx, wait, func(s *space.Space, now time.Time) bool { return s.Read(now, reader, q).Status != space.None })
		if err != nil {
			return space.Result{}, err
		}
	}
	r.app.mu.RLock()
	defer r.app.mu.RUnlock()
	if has := r.app.space.Usage().Version; has < q.Since {
		return space.Result{}, fmt.Errorf("this replica is behind: it has %d of %d operations", has, q.Since)
	}
	return r.app.space.Read(time.Now(), reader, q), nil
}

// Detail is the part of a replica's status that a single board does not have.
type Detail struct {
	Replica int          `json:"replica"`
	Faults  int          `json:"faults"`  // how many replicas may lie
	Height  int64        `json:"height"`  // of the last block
	Joining bool         `json:"joining"` // it restores the others' state and has none yet
	Accused int          `json:"accused"` // times that a replica was seen signing two things for one height
	Peers   []PeerStatus `json:"peers"`
}

// PeerStatus is one replica as seen by another.
type PeerStatus struct {
	Replica int    `json:"replica"`
	Address string `json:"address"`
	Up      bool   `json:"up"`
	Height  int64  `json:"height"` // as claimed, some seconds old
}

// Status implements [board.Backend].
func (r *replica) Status(context.Context) (board.Status, error) {
	detail := Detail{Replica: r.home.settings.Index}
	detail.Faults, _ = faults(len(r.home.genesis.Replicas)) // checked in parseGenesis
	heard := r.watch.peers()
	for i, peer := range r.home.settings.Peers {
		if i != detail.Replica {
			h, up := heard[p2p.ID(peer.Node)]
			detail.Peers = append(detail.Peers, PeerStatus{i, peer.Address, up, h.height})
		}
	}
	a := r.app
	a.mu.RLock()
	defer a.mu.RUnlock()
	detail.Height, detail.Accused, detail.Joining = a.at.Height, a.accused, a.joining
	s := board.Status{Space: a.genesis.Name, Limits: a.genesis.Limits, Usage: a.space.Usage(), Now: time.Now().UTC(), Waiting: int(a.waits.Load()),
		Members: -1, Key: r.home.identity.Key(), Detail: detail}
	if a.genesis.Members != nil {
		s.Members = len(a.genesis.Members)
	}
	return s, nil
}
