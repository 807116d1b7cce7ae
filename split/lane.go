package split

import (
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"heddle/internal/errhint"
	"heddle/observe"
	"heddle/path"
)

// lane is one path of one session: its flow, which comes and goes, its health and its counters.
type lane struct {
	index  int
	spec   path.Spec
	way    path.Path
	health path.Health
	tap    observe.Tap

	up, down tally
	switches atomic.Uint64

	mu      sync.Mutex
	opened  *sync.Cond // flow or closed changed
	flow    path.Flow
	local   netip.AddrPort
	closed  bool
	opening bool   // an open is under way
	tooBig  string // why a datagram did not fit, "" where all did

	probe question
	told  path.State // as last logged; guarded by the fan's lock
}

// question is a probe under way or due on a lane; guarded by the fan's lock.
type question struct {
	id   uint32
	sent time.Time // zero where none is under way
	due  time.Time
	wait time.Duration
}

// tally counts one direction.
type tally struct{ packets, bytes, dropped atomic.Uint64 }

func (t *tally) add(packets int, bytes int) {
	t.packets.Add(uint64(packets))
	t.bytes.Add(uint64(bytes))
}

func newLane(index int, spec path.Spec, way path.Path, o Options) *lane {
	l := &lane{index: index, spec: spec, way: way}
	l.opened = sync.NewCond(&l.mu)
	if o.Tap != nil {
		l.tap = o.Tap(spec.Name)
	}
	return l
}

// openPatience bounds one try to open a flow: a tunnel must first reach its own server.
const openPatience = 10 * time.Second

// open opens the flow to the server, unless one is open or being opened.
func (l *lane) open(ctx context.Context, to netip.AddrPort) error {
	l.mu.Lock()
	if l.flow != nil || l.closed || l.opening {
		l.mu.Unlock()
		return nil
	}
	l.opening = true
	l.mu.Unlock()
	if state, _ := l.health.State(); state == path.Unproven {
		l.health.Fail("it is being opened") // a relay takes unproven paths for good ones, and a tunnel takes its time
	}
	ctx, cancel := context.WithTimeout(ctx, openPatience)
	defer cancel()
	flow, err := path.Open(ctx, l.way, to)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.opening = false
	if err != nil {
		l.health.Fail(errhint.Reason(err))
		return err
	}
	if l.closed {
		return flow.Close()
	}
	l.flow = flow
	l.noteLocal()
	l.health.Restore()
	l.opened.Broadcast()
	return nil
}

// noteLocal remembers the local address of the flow; l.mu is held.
func (l *lane) noteLocal() {
	l.local = netip.AddrPort{}
	if a, ok := l.flow.(path.Addressed); ok {
		l.local = a.LocalAddr()
	}
}

// shut closes the flow, so that the next open makes a fresh one.
func (l *lane) shut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.flow != nil {
		l.flow.Close()
		l.flow = nil
	}
}

// close ends the lane for good: receivers return.
func (l *lane) close() {
	l.mu.Lock()
	l.closed = true
	l.opened.Broadcast()
	l.mu.Unlock()
	l.shut()
}

func (l *lane) reopenable() {
	l.mu.Lock()
	l.closed = false
	l.mu.Unlock()
}

func (l *lane) currentFlow() (path.Flow, netip.AddrPort) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.flow, l.local
}

// wait blocks until the lane has a flow; nil once it is closed.
func (l *lane) wait() path.Flow {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.flow == nil && !l.closed {
		l.opened.Wait()
	}
	if l.closed {
		return nil
	}
	return l.flow
}

// rotate takes a new local port, where the kind of path has that.
func (l *lane) rotate() error {
	flow, _ := l.currentFlow()
	r, ok := flow.(path.Rotator)
	if !ok {
		return nil
	}
	if err := r.Rotate(); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.flow != nil {
		l.noteLocal()
	}
	return nil
}

// send sends datagrams and counts them.
func (l *lane) send(now time.Time, to netip.AddrPort, datagrams [][]byte) error {
	flow, local := l.currentFlow()
	if flow == nil {
		l.up.dropped.Add(uint64(len(datagrams)))
		return net.ErrClosed
	}
	n, err := flow.Send(datagrams)
	bytes, questions := 0, 0
	for _, d := range datagrams[:n] {
		bytes += len(d)
		questions += weight(d)
		if l.tap != nil {
			l.tap.Datagram(now, true, local, to, d)
		}
	}
	l.up.add(n, bytes)
	l.up.dropped.Add(uint64(len(datagrams) - n))
	if questions > 0 {
		l.health.Sent(now, questions)
	}
	return err
}

// weight is how much a datagram without an answer says against a path. A WireGuard server never answers a keep-alive,
// and always a handshake.
func weight(d []byte) int {
	switch {
	case len(d) == transportMin && binary.LittleEndian.Uint32(d) == transportType:
		return 0
	case len(d) == initiationLength && binary.LittleEndian.Uint32(d) == initiationType:
		return path.SuspectPackets
	}
	return 1
}

// note counts and taps one datagram that took a flow beside the lane's own.
func (l *lane) note(t *tally, now time.Time, out bool, flow path.Flow, server netip.AddrPort, datagram []byte) {
	t.add(1, len(datagram))
	if a, ok := flow.(path.Addressed); ok && l.tap != nil {
		l.tap.Datagram(now, out, a.LocalAddr(), server, datagram)
	}
}
