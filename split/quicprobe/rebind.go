package quicprobe

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"heddle/internal/netutil"
	"heddle/path"
)

// queueLength is how many datagrams may wait to be read; the kernel keeps the others.
const queueLength = 1024

// rebinder is the client's socket. It writes by the current endpoint and reads from all.
type rebinder struct {
	to       netip.AddrPort
	remote   *net.UDPAddr
	local    net.Addr
	meter    *meter
	stranger path.Stranger
	arrived  chan *datagram
	done     chan struct{}
	deadline path.Deadline
	refused  chan error // the first ICMP error while nothing was heard yet
	close    sync.Once
	work     sync.WaitGroup
	current  atomic.Pointer[endpoint]
	pool     sync.Pool

	mu        sync.Mutex
	endpoints []*endpoint
	closed    bool
}

// datagram is a received datagram in a reused buffer.
type datagram struct{ data []byte }

// endpoint is one address and port of the client, which the server sees as one path.
type endpoint struct {
	flow     path.Flow
	sent     atomic.Int64 // datagrams
	received atomic.Int64
	woken    chan struct{} // signals that something was heard
}

func newRebinder(to netip.AddrPort, m *meter) *rebinder {
	r := &rebinder{to: to, remote: net.UDPAddrFromAddrPort(to), local: &net.UDPAddr{}, meter: m,
		arrived: make(chan *datagram, queueLength), done: make(chan struct{}), refused: make(chan error, 1)}
	r.pool.New = func() any { return new(datagram) }
	return r
}

// add opens an endpoint on a path and listens on it. The first one is current at once.
func (r *rebinder) add(ctx context.Context, way path.Path) (*endpoint, error) {
	flow, err := path.Open(ctx, way, r.to)
	if err != nil {
		return nil, err
	}
	l := &endpoint{flow: flow, woken: make(chan struct{}, 1)}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		flow.Close()
		return nil, net.ErrClosed
	}
	r.endpoints = append(r.endpoints, l)
	if r.current.CompareAndSwap(nil, l) {
		if a, ok := flow.(path.Addressed); ok {
			r.local = net.UDPAddrFromAddrPort(a.LocalAddr())
		}
	}
	r.work.Go(func() { r.listen(l) })
	return l, nil
}

// use makes an endpoint current from the next datagram on.
func (r *rebinder) use(l *endpoint) { r.current.Store(l) }

func (r *rebinder) listen(l *endpoint) {
	into := make([]path.Inbound, 4)
	for {
		n, err := l.flow.Receive(into)
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			if !r.trouble(err) {
				return
			}
			continue
		}
		for _, in := range into[:n] {
			if !r.stranger.Expected(in.From, r.to) {
				continue
			}
			for d := range in.Datagrams() {
				if !r.take(l, d) {
					return
				}
			}
		}
	}
}

// trouble records an ICMP error. It waits a moment, so that a path that keeps failing does not spin.
func (r *rebinder) trouble(err error) bool {
	netutil.Offer(r.refused, err)
	select {
	case <-r.done:
		return false
	case <-time.After(10 * time.Millisecond):
		return true
	}
}

func (r *rebinder) take(l *endpoint, data []byte) bool {
	r.meter.add(len(data), &r.meter.received)
	l.received.Add(1)
	netutil.Offer(l.woken, struct{}{})
	d := r.pool.Get().(*datagram)
	d.data = append(d.data[:0], data...)
	select {
	case r.arrived <- d:
		return true
	case <-r.done:
		return false
	}
}

// heard waits until n more datagrams than before have arrived on the endpoint. It reports whether they came in time.
func (l *endpoint) heard(ctx context.Context, before, n int64, within time.Duration) bool {
	return await(ctx, within, l.woken, func() bool { return l.received.Load() >= before+n })
}

// await waits until done, which it calls after each signal of woken, and reports whether that came in time.
func await(ctx context.Context, within time.Duration, woken <-chan struct{}, done func() bool) bool {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for !done() {
		select {
		case <-woken:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

func (r *rebinder) ReadFrom(p []byte) (int, net.Addr, error) {
	select {
	case d := <-r.arrived:
		n := copy(p, d.data)
		r.pool.Put(d)
		return n, r.remote, nil
	case <-r.done:
		return 0, nil, net.ErrClosed
	case <-r.deadline.Passed():
		return 0, nil, os.ErrDeadlineExceeded
	}
}

// WriteTo sends by the current endpoint. What that endpoint cannot send is lost, as in a network.
func (r *rebinder) WriteTo(p []byte, _ net.Addr) (int, error) {
	select {
	case <-r.done:
		return 0, net.ErrClosed
	default:
	}
	l := r.current.Load()
	if !r.meter.add(len(p), &r.meter.sent) {
		return len(p), nil
	}
	l.sent.Add(1)
	if _, err := l.flow.Send([][]byte{p}); err != nil && !errors.Is(err, net.ErrClosed) {
		netutil.Offer(r.refused, err)
	}
	return len(p), nil
}

// Close closes all endpoints and waits for their readers.
func (r *rebinder) Close() error {
	r.close.Do(func() {
		close(r.done)
		r.mu.Lock()
		r.closed = true
		for _, l := range r.endpoints {
			l.flow.Close()
		}
		r.mu.Unlock()
		r.work.Wait()
	})
	return nil
}

func (r *rebinder) LocalAddr() net.Addr { return r.local }

func (r *rebinder) SetReadDeadline(t time.Time) error {
	r.deadline.Set(t)
	return nil
}

func (r *rebinder) SetDeadline(t time.Time) error { return r.SetReadDeadline(t) }

// SetWriteDeadline does nothing: a datagram is sent or dropped at once.
func (r *rebinder) SetWriteDeadline(time.Time) error { return nil }

// SetReadBuffer and SetWriteBuffer do nothing: the flows have large buffers. quic-go complains if it lacks the methods.
func (r *rebinder) SetReadBuffer(int) error { return nil }

func (r *rebinder) SetWriteBuffer(int) error { return nil }

// errBytes ends a probe that has used up its bytes.
var errBytes = errors.New("the bytes of the probe are used up")

// meter counts the UDP payload that a probe sends and receives, in bytes, and ends the probe at a bound.
type meter struct {
	max            int64
	sent, received atomic.Int64
	stop           context.CancelCauseFunc
}

// add counts n bytes into one of the two counters. It reports whether the bound holds.
func (m *meter) add(n int, to *atomic.Int64) bool {
	to.Add(int64(n))
	if m.sent.Load()+m.received.Load() <= m.max {
		return true
	}
	m.stop(errBytes)
	return false
}

func (m *meter) used() int64 { return m.sent.Load() + m.received.Load() }
