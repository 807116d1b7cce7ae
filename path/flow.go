package path

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
)

// Checker is a flow that can tell whether it still leaves by its path.
type Checker interface {
	// Check fails where the flow must be opened again: its address changed, its device or route went.
	Check() error
}

// Check fails if the flow would no longer leave by its path. A flow that cannot tell is taken to do so.
func Check(f Flow) error {
	if c, ok := f.(Checker); ok {
		return c.Check()
	}
	return nil
}

// LocalOf returns the local address of a flow's datagrams, or the zero value if the flow does not know it.
func LocalOf(f Flow) netip.AddrPort {
	if a, ok := f.(Addressed); ok {
		return a.LocalAddr()
	}
	return netip.AddrPort{}
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

// binder returns what a socket to an address must be tied to now.
type binder func(to netip.Addr) (binding, error)

// openFlow opens a flow that is tied as bind says. The flow fails its check once bind fails or gives another local address.
func openFlow(ctx context.Context, spec Spec, bind binder, to netip.AddrPort) (Flow, error) {
	what := "path " + spec.Name
	b, err := bind(to.Addr())
	if err != nil {
		return nil, err
	}
	s, err := openSocket(ctx, b)
	if err != nil {
		return nil, &Error{What: what, Why: "cannot open a socket on " + spec.Arg, Err: err}
	}
	f := &udpFlow{Socket: s, bound: b, to: to, check: func() error {
		now, err := bind(to.Addr())
		if err == nil && now.local != b.local {
			err = &Error{What: what, Why: fmt.Sprintf("its address is %v now, no longer %v", now.local.Addr(), b.local.Addr())}
		}
		return err
	}}
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
