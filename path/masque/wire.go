package masque

import (
	"errors"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"

	"heddle/path"
)

// wire is the base path's flow as the socket that quic-go wants. It keeps from quic-go what would end a connection
// that is alive: a router's word, or a full queue.
type wire struct {
	net.PacketConn
	flow path.Flow
	// up is set once the proxy has proved who it is; what others say of it counts for little from then on.
	up atomic.Bool
	// refused is why packets to the proxy could not be delivered, before it was up.
	refused atomic.Pointer[path.Unreachable]
}

// newWire gives the socket for quic-go, and the wire inside it.
func newWire(f path.Flow, remote netip.AddrPort) (net.PacketConn, *wire) {
	w := &wire{PacketConn: path.PacketConn(f, remote), flow: f}
	if s, ok := f.(syscall.Conn); ok {
		if raw, err := s.SyscallConn(); err == nil {
			return &rawWire{wire: w, raw: raw}, w
		}
	}
	return w, w
}

// rawWire lets quic-go set the don't-fragment bit, without which it looks for no larger packet size (RFC 8899).
type rawWire struct {
	*wire
	raw syscall.RawConn
}

func (w *rawWire) SyscallConn() (syscall.RawConn, error) { return w.raw, nil }

// SetReadBuffer does nothing: the flow has sized its buffers.
func (w *wire) SetReadBuffer(int) error { return nil }

// SetWriteBuffer does nothing: the flow has sized its buffers.
func (w *wire) SetWriteBuffer(int) error { return nil }

func (w *wire) ReadFrom(p []byte) (int, net.Addr, error) {
	for {
		n, from, err := w.PacketConn.ReadFrom(p)
		var u *path.Unreachable
		if err == nil || !errors.As(err, &u) {
			return n, from, err
		}
		if u.Errno == syscall.EMSGSIZE || w.up.Load() && u.Errno != syscall.ECONNREFUSED {
			continue // a probe for a larger size, or somebody's word that QUIC's own timers will check
		}
		w.refused.CompareAndSwap(nil, u)
		return n, from, err
	}
}

func (w *wire) WriteTo(p []byte, to net.Addr) (int, error) {
	n, err := w.PacketConn.WriteTo(p, to)
	var u *path.Unreachable
	if err == nil || !errors.As(err, &u) || u.Errno == syscall.EMSGSIZE {
		return n, err
	}
	if w.up.Load() || u.Errno == syscall.ENOBUFS || u.Errno == syscall.EAGAIN {
		return len(p), nil // lost, as packets are
	}
	w.refused.CompareAndSwap(nil, u)
	return n, err
}
