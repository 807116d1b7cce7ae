package path

import (
	"context"
	"net/netip"
	"sync"
)

// Checker is a flow that can tell whether it still leaves by its path.
type Checker interface {
	// Check fails where the flow must be opened again: its address changed, its device or route went.
	Check() error
}

// udpFlow is a socket with one remote address.
type udpFlow struct {
	*Socket
	bound binding
	to    netip.AddrPort
	check func() error
	once  sync.Once
}

// binding is what a socket is tied to.
type binding struct {
	local  netip.AddrPort
	device string
	mark   uint32
}

// Listen opens a socket for datagrams from anybody, bound to local.
func Listen(local netip.AddrPort) (*Socket, error) {
	return openSocket(context.Background(), binding{local: local})
}

func openFlow(ctx context.Context, spec Spec, b binding, to netip.AddrPort, check func() error) (Flow, error) {
	s, err := openSocket(ctx, b)
	if err != nil {
		return nil, &Error{What: "path " + spec.Name, Why: "cannot open a socket on " + spec.Arg, Err: err}
	}
	f := &udpFlow{Socket: s, bound: b, to: to, check: check}
	if b.device != "" {
		remember(f)
	}
	return f, nil
}

func (f *udpFlow) Send(datagrams [][]byte) (int, error) { return f.SendTo(f.to, datagrams) }

func (f *udpFlow) Check() error { return f.check() }

func (f *udpFlow) Close() error {
	f.once.Do(func() {
		forget(f)
		if f.bound.answersElsewhere(f.to.Addr()) {
			keep(f.raw, false)
		}
	})
	return f.Socket.Close()
}
