// Package netutil has helpers for stream servers and relays: an accept loop that survives a lack of file descriptors, a
// bidirectional copy that passes on half-closes, and conversions to netip addresses.
package netutil

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"
)

// Listener accepts connections like a [net.Listener], but of any type.
type Listener[C io.Closer] interface {
	Accept() (C, error)
	Close() error
}

// Serve calls handle with each connection, one after the other, until ctx or the listener ends. It closes the listener. It
// returns nil if ctx ended, or else the listener's error, such as [net.ErrClosed].
func Serve[C io.Closer](ctx context.Context, l Listener[C], handle func(C)) error {
	patient := &patientListener[C]{Listener: l, closed: make(chan struct{})}
	defer patient.Close()
	defer context.AfterFunc(ctx, func() { patient.Close() })()
	for {
		c, err := patient.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				c.Close()
			}
			return nil
		case err != nil:
			return err
		}
		handle(c)
	}
}

// Patient returns a listener whose Accept retries after the same errors as [Serve], for servers with their own accept loop.
func Patient(l net.Listener) net.Listener {
	return patientNet{&patientListener[net.Conn]{Listener: l, closed: make(chan struct{})}, l}
}

type patientNet struct {
	*patientListener[net.Conn]
	l net.Listener
}

func (p patientNet) Addr() net.Addr { return p.l.Addr() }

// Pauses between failed attempts to accept: doubled each time, as in net/http.
const (
	firstPause = 5 * time.Millisecond
	lastPause  = time.Second
)

type patientListener[C io.Closer] struct {
	Listener[C]
	closed chan struct{}
	once   sync.Once
}

func (p *patientListener[C]) Accept() (none C, err error) {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		c, err := p.Listener.Accept()
		if err == nil || !passes(err) {
			return c, err
		}
		if pause == firstPause {
			slog.Warn("cannot accept a connection; trying again", "error", err)
		}
		select {
		case <-p.closed:
			return none, net.ErrClosed
		case <-time.After(pause):
		}
	}
}

func (p *patientListener[C]) Close() error {
	p.once.Do(func() { close(p.closed) })
	return p.Listener.Close()
}

// passes reports whether accepting may work later. System errors concern one connection (ECONNABORTED, EPROTO) or a lack of
// resources (EMFILE, ENFILE, ENOBUFS, ENOMEM), except for those of a socket that does not listen.
func passes(err error) bool {
	_, system := errors.AsType[syscall.Errno](err)
	return system && !errors.Is(err, syscall.EBADF) && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.ENOTSOCK)
}

// Sleep waits for d. If ctx ends first, it returns the error of ctx.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// AddrPort returns a TCP or UDP address, unmapped to IPv4 where possible, or the zero AddrPort for other addresses.
func AddrPort(a net.Addr) netip.AddrPort {
	if known, ok := a.(interface{ AddrPort() netip.AddrPort }); ok {
		at := known.AddrPort()
		return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
	}
	return netip.AddrPort{}
}

// Reset closes a connection at once. With TCP it sends a reset, so that the peer does not mistake it for the end of the
// stream, and discards the data that the kernel still holds.
func Reset(c net.Conn) {
	if tcp, ok := c.(interface{ SetLinger(int) error }); ok {
		_ = tcp.SetLinger(0)
	}
	c.Close()
}

// Offer sends a value if the channel has room for it. It does not block.
func Offer[T any](to chan<- T, value T) {
	select {
	case to <- value:
	default:
	}
}
