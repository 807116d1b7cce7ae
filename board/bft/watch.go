package bft

import (
	"errors"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/cometbft/cometbft/p2p"
	"github.com/cometbft/cometbft/p2p/conn"
	gogotypes "github.com/cosmos/gogoproto/types"
)

// CometBFT takes more than a minute to notice a dead connection and then backs off. So replicas send beats, drop silent
// connections and redial at once, so that writes resume as soon as enough replicas are connected.
const (
	beat        = time.Second
	silence     = 4 * beat
	beatChannel = 0x7e
)

var errSilent = errors.New("nothing was heard from it")

// watch is a p2p.Reactor for beats.
type watch struct {
	p2p.BaseReactor
	dial   []Peer // peers that this replica dials; the others dial it
	height func() int64
	faults int
	log    *slog.Logger
	stop   chan struct{}

	mu    sync.Mutex
	heard map[p2p.ID]heard
}

// heard is the last beat of a peer.
type heard struct {
	at     time.Time
	height int64
}

func newWatch(dial []Peer, height func() int64, faults int, log *slog.Logger) *watch {
	w := &watch{dial: dial, height: height, faults: faults, log: log, stop: make(chan struct{}), heard: map[p2p.ID]heard{}}
	w.BaseReactor = *p2p.NewBaseReactor("WATCH", w)
	return w
}

func (w *watch) GetChannels() []*conn.ChannelDescriptor {
	return []*conn.ChannelDescriptor{{ID: beatChannel, Priority: 10, SendQueueCapacity: 4, RecvMessageCapacity: 64, MessageType: &gogotypes.Int64Value{}}}
}

// begin must run after all reactors have started, or one of them would miss a peer.
func (w *watch) begin() {
	go w.beats()
	for _, to := range w.dial {
		go w.keep(to)
	}
}

func (w *watch) OnStop() { close(w.stop) }

func (w *watch) AddPeer(peer p2p.Peer) {
	w.hear(peer.ID(), 0)
	w.log.Info("replica connected", "node", peer.ID(), "address", peer.RemoteAddr())
}

func (w *watch) RemovePeer(peer p2p.Peer, reason any) {
	w.mu.Lock()
	delete(w.heard, peer.ID())
	w.mu.Unlock()
	w.log.Warn("replica lost", "node", peer.ID(), "why", reason)
}

func (w *watch) Receive(e p2p.Envelope) {
	if m, ok := e.Message.(*gogotypes.Int64Value); ok {
		w.hear(e.Src.ID(), m.Value)
	}
}

func (w *watch) hear(id p2p.ID, height int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.heard[id] = heard{time.Now(), height}
}

// reached reports whether more than f replicas say that they have this block.
func (w *watch) reached(height int64) bool {
	n := 0
	for _, h := range w.peers() {
		if h.height >= height {
			n++
		}
	}
	return n > w.faults
}

// beats sends beats to all peers and drops silent ones.
func (w *watch) beats() {
	tick := time.NewTicker(beat)
	defer tick.Stop()
	told := false
	for {
		select {
		case <-w.stop:
			return
		case <-tick.C:
		}
		if own := w.height(); own > 0 && !told && w.reached(own+retain) {
			told = true
			w.log.Error("this replica was away for too long: the others have no longer the blocks that it lacks", "height", own,
				"hint", "stop it, move the directory data of its home away and nothing else, and run it with --from-snapshot")
		}
		for _, peer := range w.Switch.Peers().Copy() {
			peer.TrySend(p2p.Envelope{ChannelID: beatChannel, Message: &gogotypes.Int64Value{Value: w.height()}})
			w.mu.Lock()
			last, known := w.heard[peer.ID()]
			w.mu.Unlock()
			if known && time.Since(last.at) > silence {
				w.Switch.StopPeerForError(peer, errSilent)
			}
		}
	}
}

// keep dials a peer again and again, and resolves its name each time.
func (w *watch) keep(to Peer) {
	tick := time.NewTicker(beat)
	defer tick.Stop()
	for {
		address, err := p2p.NewNetAddressString(to.Node + "@" + to.Address)
		if err == nil && !w.Switch.IsDialingOrExistingAddress(address) {
			err = w.Switch.DialPeerWithAddress(address)
		}
		if err != nil {
			w.log.Debug("replica not reached", "node", to.Node, "why", err)
		}
		select {
		case <-w.stop:
			return
		case <-tick.C:
		}
	}
}

// peers returns the last beat of each peer.
func (w *watch) peers() map[p2p.ID]heard {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.heard)
}
