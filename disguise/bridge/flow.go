package bridge

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"heddle/disguise/mux"
	"heddle/proxy/targets"
)

// largest is the most bytes of a datagram from a target. Networks carry no larger one.
const largest = 9 << 10

// flows are the open flows of a link, by the client's numbers.
type flows struct {
	mu sync.Mutex
	of map[uint16]*flow
}

// flow is the socket of one flow of datagrams.
type flow struct {
	socket *net.UDPConn
	active atomic.Int64 // Unix nanoseconds of the last datagram
	counts *counts
}

func (f *flow) touch() { f.active.Store(time.Now().UnixNano()) }

// add returns false if the number is taken.
func (f *flows) add(number uint16, one *flow) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.of == nil {
		f.of = map[uint16]*flow{}
	}
	if f.of[number] != nil {
		return false
	}
	f.of[number] = one
	return true
}

func (f *flows) remove(number uint16) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.of, number)
}

// take sends a datagram of the client to its target. It does not block.
func (f *flows) take(number uint16, datagram []byte) {
	f.mu.Lock()
	one := f.of[number]
	f.mu.Unlock()
	if one == nil {
		return // the flow ended, or is not open yet
	}
	if _, err := one.socket.Write(datagram); err != nil {
		one.counts.dropped.Add(1)
		return
	}
	one.touch()
}

// flow carries datagrams until the client ends the stream, or nothing was carried for long.
func (b *Bridge) flow(ctx context.Context, e *entry, s *mux.Stream, r mux.Request) {
	socket, err := reach(ctx, b, r, func(_ context.Context, to netip.AddrPort) (*net.UDPConn, error) { return targets.DialUDP(to) })
	if err != nil {
		_ = s.Answer(b.codeFor(err))
		return
	}
	defer socket.Close()
	one := &flow{socket: socket, counts: &b.counts}
	one.touch()
	if !e.flows.add(r.Flow, one) {
		_ = s.Answer(mux.Broken)
		return
	}
	defer e.flows.remove(r.Flow)
	if s.Answer(mux.Granted) != nil {
		return
	}
	defer context.AfterFunc(ctx, func() { socket.Close() })()
	b.work.Go(func() { // the end of the stream is the end of the flow
		_, _ = io.Copy(io.Discard, s)
		socket.Close()
	})
	b.down(e, r.Flow, one)
}

// down carries what the target sends, until the socket is closed or the flow is idle.
func (b *Bridge) down(e *entry, number uint16, f *flow) {
	buffer := make([]byte, largest+1)
	for {
		_ = f.socket.SetReadDeadline(time.Unix(0, f.active.Load()).Add(b.o.Idle))
		n, err := f.socket.Read(buffer)
		timeout, isTimeout := errors.AsType[net.Error](err)
		switch {
		case err == nil && n <= largest:
			f.touch()
			if e.link.SendDatagram(number, buffer[:n]) != nil {
				b.counts.dropped.Add(1)
			}
		case err == nil:
			b.counts.dropped.Add(1)
		case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.EMSGSIZE): // of a datagram before; the next may arrive
		case isTimeout && timeout.Timeout() && time.Since(time.Unix(0, f.active.Load())) < b.o.Idle:
		default:
			return
		}
	}
}
