package connectudp

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
)

// exit is a socket towards one target, and the flows that leave by it. Flows of one session have one: the target sees
// one address and port, whichever way the client takes to the proxy, and its answers go to where the client spoke last.
type exit struct {
	socket  *net.UDPConn
	speaker atomic.Pointer[relay] // the flow that sent last
	ended   chan struct{}         // closed when the socket failed or was closed
	counts  *counts
	name    uint64 // random, not 0; tells the counts of exits apart
	place   uint64 // of the last datagram that a flow took; reader's own

	uses int // guarded by the table
}

// exitKey says whose flows to where belong together.
type exitKey struct {
	user, session string
	to            netip.AddrPort
}

// exits are those in use. Flows without a session have one each.
type exits struct {
	mu   sync.Mutex
	open map[exitKey]*exit
}

// enter gives the exit of a key, by a new socket where there is none yet.
func (e *exits) enter(key exitKey, counts *counts) (*exit, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if shared := e.open[key]; shared != nil && key.session != "" {
		select {
		case <-shared.ended:
		default:
			shared.uses++
			return shared, nil
		}
	}
	socket, err := dialTarget(key.to)
	if err != nil {
		return nil, err
	}
	x := &exit{socket: socket, ended: make(chan struct{}), counts: counts, name: exitName(), uses: 1}
	if key.session != "" {
		e.open[key] = x
	}
	go x.read()
	return x, nil
}

// exitName draws a name for a count.
func exitName() uint64 {
	var random [8]byte
	rand.Read(random[:])
	return max(binary.BigEndian.Uint64(random[:]), 1)
}

// leave closes the exit after its last flow.
func (e *exits) leave(key exitKey, x *exit) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if x.uses--; x.uses > 0 {
		return
	}
	x.socket.Close()
	if e.open[key] == x {
		delete(e.open, key)
	}
}

// read hands what the target sends to the flow that spoke last. What it drops leaves no gap in the count.
func (x *exit) read() {
	defer close(x.ended)
	buffer := make([]byte, largest)
	for {
		n, err := x.socket.Read(buffer)
		if errors.Is(err, syscall.EMSGSIZE) {
			continue // what the client sent was too large for the way to the target
		}
		if err != nil {
			return
		}
		r := x.speaker.Load()
		if n == largest || r == nil {
			x.counts.down.dropped.Add(1)
			continue
		}
		place := x.place + 1
		if !r.numbers(buffer[:n], place) {
			place = 0
		}
		if !r.hear(buffer[:n], place) {
			x.counts.down.dropped.Add(1)
			continue
		}
		x.place = max(x.place, place)
	}
}
