package masque

import (
	"errors"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"

	"heddle/path"
)

// wire adapts the base path's flow to the socket that quic-go needs. It hides errors that would end a live connection:
// messages from routers, and full queues.
type wire struct {
	*path.Conn
	flow    path.Flow
	up      atomic.Bool                      // the proxy proved its identity; from then on ICMP messages count for little
	largest atomic.Int64                     // packet of the proxy so far, in bytes
	refused atomic.Pointer[path.Unreachable] // why packets to the proxy were undeliverable, before it was up
}

// newWire returns the socket for quic-go, and its wire.
func newWire(f path.Flow, remote netip.AddrPort) (net.PacketConn, *wire) {
	w := &wire{Conn: path.PacketConn(f, remote), flow: f}
	if s, ok := f.(syscall.Conn); ok {
		if raw, err := s.SyscallConn(); err == nil {
			return &rawWire{wire: w, raw: raw}, w
		}
	}
	return w, w
}

// rawWire lets quic-go set the don't-fragment bit, which it needs to search for a larger packet size (RFC 8899).
type rawWire struct {
	*wire
	raw syscall.RawConn
}

func (w *rawWire) SyscallConn() (syscall.RawConn, error) { return w.raw, nil }

// SetReadBuffer does nothing: the flow sized its buffers.
func (w *wire) SetReadBuffer(int) error { return nil }

// SetWriteBuffer does nothing: the flow sized its buffers.
func (w *wire) SetWriteBuffer(int) error { return nil }

func (w *wire) ReadFrom(p []byte) (int, net.Addr, error) {
	for {
		n, from, err := w.Conn.ReadFrom(p)
		var u *path.Unreachable
		if err == nil || !errors.As(err, &u) {
			if int64(n) > w.largest.Load() { // only this goroutine stores
				w.largest.Store(int64(n))
			}
			return n, from, err
		}
		if u.Errno == syscall.EMSGSIZE || w.up.Load() && u.Errno != syscall.ECONNREFUSED {
			continue // a probe for a larger size, or an ICMP message, which QUIC's own timers verify
		}
		w.refused.CompareAndSwap(nil, u)
		return n, from, err
	}
}

func (w *wire) WriteTo(p []byte, to net.Addr) (int, error) {
	n, err := w.Conn.WriteTo(p, to)
	var u *path.Unreachable
	if err == nil || !errors.As(err, &u) || u.Errno == syscall.EMSGSIZE {
		return n, err
	}
	if w.up.Load() || u.Errno == syscall.ENOBUFS || u.Errno == syscall.EAGAIN {
		return len(p), nil // drop it, as a network would
	}
	w.refused.CompareAndSwap(nil, u)
	return n, err
}
