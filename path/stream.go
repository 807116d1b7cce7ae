package path

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"time"

	"heddle/internal/dial"
)

// dialFrom connects with TCP to the first address of a target that answers, with the bindings of bind. It asks the system
// resolver.
func dialFrom(ctx context.Context, bind binder, to Target) (net.Conn, error) {
	single := func(ctx context.Context, at netip.AddrPort) (net.Conn, error) {
		b, err := bind(at.Addr())
		if err != nil {
			return nil, err
		}
		return dialStream(ctx, b, at)
	}
	if to.Name == "" {
		return single(ctx, netip.AddrPortFrom(to.Addr, to.Port))
	}
	c, err := dial.Dialer[net.Conn]{Single: single}.Dial(ctx, to.Name, to.Port)
	if err != nil {
		return nil, &Error{What: "connect to " + to.String(), Why: "no address of it answers", Err: err}
	}
	return c, nil
}

// dialStream connects with TCP from a socket with binding b.
func dialStream(ctx context.Context, b binding, to netip.AddrPort) (net.Conn, error) {
	var held heldID
	d := net.Dialer{Control: beforeBinding(func(fd int) error {
		if held != 0 { // of a try before
			release(held, false)
		}
		if b.device != "" {
			held = hold(fd, true)
			stayBound(fd)
		}
		return b.tie(fd)
	})}
	if b.local.Addr().IsValid() {
		d.LocalAddr = &net.TCPAddr{IP: b.local.Addr().AsSlice(), Port: int(b.local.Port())}
	}
	if b.device != "" {
		guard(to.Addr())
	}
	c, err := d.DialContext(ctx, "tcp", to.String())
	if err != nil && held != 0 {
		release(held, true) // the peer's answer may be under way
	}
	if tcp, ok := c.(*net.TCPConn); ok && b.device != "" {
		s := &stream{TCPConn: tcp, bound: b, to: to.Addr(), held: held}
		remember(s)
		return s, nil
	}
	return c, err
}

// stream is a TCP connection from a socket that is tied to a device.
type stream struct {
	*net.TCPConn
	bound binding
	to    netip.Addr
	held  heldID
	once  sync.Once
}

// Close closes both directions.
func (s *stream) Close() error {
	s.once.Do(func() {
		forget(s)
		if raw, err := s.SyscallConn(); err == nil {
			s.bound.letGo(raw, s.held, s.to, true)
		}
	})
	return s.TCPConn.Close()
}

func (s *stream) NetConn() net.Conn { return s.TCPConn }

// KeepAlive enables TCP keep-alives, so that a connection ends if the peer disappears.
func KeepAlive(c net.Conn) {
	if tcp, ok := c.(interface {
		SetKeepAliveConfig(net.KeepAliveConfig) error
	}); ok {
		tcp.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 3})
	}
}
