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

	"heddle/proxy/targets"
)

// exit is a socket to one target, shared by all flows of a session. So the target sees one address and port, whatever path
// the client takes to the proxy, and its answers go to the flow that sent last.
type exit struct {
	socket  *net.UDPConn
	speaker atomic.Pointer[relay] // the flow that sent last
	ended   chan struct{}         // closed when the socket fails or is closed
	counts  *counts
	name    uint64 // random, not 0; distinguishes the sequence numbers of exits
	place   uint64 // sequence number of the last datagram that a flow took; used by read only

	uses int // guarded by exits.mu
}

// exitKey identifies the flows that share an exit.
type exitKey struct {
	user, session string
	to            netip.AddrPort
}

// exits holds the open exits. Flows without a session have their own.
type exits struct {
	mu   sync.Mutex
	open map[exitKey]*exit
}

// enter returns the exit of a key, or opens a socket.
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
	socket, err := targets.DialUDP(key.to)
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

// read passes datagrams from the target to the flow that sent last. Dropped datagrams leave no gap in the numbering.
func (x *exit) read() {
	defer close(x.ended)
	buffer := make([]byte, largest)
	for {
		n, err := x.socket.Read(buffer)
		if errors.Is(err, syscall.EMSGSIZE) {
			continue // the client sent a datagram above the path MTU to the target
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
