package wireguard

import (
	"errors"
	"net"
	"net/netip"
	"sync"

	"golang.zx2c4.com/wireguard/conn"

	"heddle/internal/netutil"
	"heddle/internal/wgqueue"
	"heddle/path"
)

// bind carries wireguard-go's packets over a flow of the path under the tunnel. The flow may be replaced at any time.
type bind struct {
	up, down *wgqueue.Gate
	broken   chan struct{} // signals that the flow is unusable

	mu     sync.Mutex
	ready  *sync.Cond // flow or closed changed
	flow   path.Flow
	to     netip.AddrPort
	closed bool
	heard  error // last network error of the flow; nil after any datagram

	sending sync.Mutex
}

var _ conn.Bind = (*bind)(nil)

func newBind(up, down *wgqueue.Gate) *bind {
	b := &bind{up: up, down: down, broken: make(chan struct{}, 1)}
	b.ready = sync.NewCond(&b.mu)
	return b
}

// use replaces the flow, which leads to the endpoint at to. Without a flow, packets are dropped.
func (b *bind) use(flow path.Flow, to netip.AddrPort) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.flow != nil {
		b.flow.Close()
	}
	b.flow, b.to, b.heard = flow, to, nil
	if b.closed && flow != nil {
		flow.Close()
		b.flow = nil
	}
	select {
	case <-b.broken:
	default:
	}
	b.ready.Broadcast()
}

// current returns the flow, or nil.
func (b *bind) current() (path.Flow, netip.AddrPort) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.flow, b.to
}

// await blocks until there is a flow. It returns nil once the bind is closed.
func (b *bind) await() (path.Flow, netip.AddrPort) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.flow == nil && !b.closed {
		b.ready.Wait()
	}
	return b.flow, b.to
}

// said returns the last network error of the flow, or nil.
func (b *bind) said() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.heard
}

// trouble records an error of the flow, and gives the flow up unless the network reported the error.
func (b *bind) trouble(flow path.Flow, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.flow != flow {
		return // an error of an earlier flow
	}
	b.heard = err
	var u *path.Unreachable
	if errors.As(err, &u) {
		return
	}
	flow.Close()
	b.flow = nil
	netutil.Offer(b.broken, struct{}{})
}

// Open lets wireguard-go receive. It ignores the port, which the flow chose.
func (b *bind) Open(uint16) ([]conn.ReceiveFunc, uint16, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = false
	return []conn.ReceiveFunc{b.receiver()}, 0, nil
}

func (b *bind) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	if b.flow != nil {
		b.flow.Close()
		b.flow = nil
	}
	b.ready.Broadcast()
	return nil
}

// SetMark does nothing: the path under the tunnel sets its own mark.
func (b *bind) SetMark(uint32) error { return nil }

func (b *bind) BatchSize() int { return batch }

// ParseEndpoint accepts any text: packets go where the flow leads.
func (b *bind) ParseEndpoint(string) (conn.Endpoint, error) { return &wgqueue.Endpoint{}, nil }

// Send sends by the flow. It drops what it cannot send, as a network would.
func (b *bind) Send(packets [][]byte, _ conn.Endpoint) error {
	b.up.Leave(len(packets))
	flow, _ := b.current()
	if flow == nil {
		return net.ErrClosed
	}
	b.sending.Lock()
	defer b.sending.Unlock()
	if _, err := flow.Send(packets); err != nil {
		b.trouble(flow, err)
	}
	return nil
}

func (b *bind) receiver() conn.ReceiveFunc {
	into := make([]path.Inbound, 4)
	var datagrams, left [][]byte
	from := &wgqueue.Endpoint{}
	return func(packets [][]byte, sizes []int, endpoints []conn.Endpoint) (int, error) {
		b.down.Wait()
		for len(left) == 0 {
			flow, to := b.await()
			if flow == nil {
				return 0, net.ErrClosed
			}
			n, err := flow.Receive(into)
			if err != nil {
				b.trouble(flow, err)
				continue
			}
			datagrams = path.AppendDatagrams(datagrams[:0], b.accept(into[:n], to)...)
			left = datagrams
			if from.Address != to {
				from = &wgqueue.Endpoint{Address: to}
			}
		}
		n := b.down.Hand(left, packets, sizes, endpoints, from)
		left = left[n:]
		return n, nil
	}
}

// accept keeps the datagrams from the endpoint.
func (b *bind) accept(inbound []path.Inbound, to netip.AddrPort) []path.Inbound {
	kept := inbound[:0]
	for _, in := range inbound {
		if in.From == to && len(in.Data) > 0 {
			kept = append(kept, in)
		}
	}
	if len(kept) > 0 {
		b.mu.Lock()
		b.heard = nil
		b.mu.Unlock()
	}
	return kept
}
