package path

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
)

// Checker is a flow that knows whether it still leaves by its path.
type Checker interface {
	// Check fails if the flow must be reopened, because its address changed, or its device or route disappeared.
	Check() error
}

// Check fails if the flow would no longer leave by its path. For a flow that is no [Checker] it returns nil.
func Check(f Flow) error {
	if c, ok := f.(Checker); ok {
		return c.Check()
	}
	return nil
}

// LocalOf returns the local address of a flow's datagrams, or the zero value if it is unknown.
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
	held  heldID
	once  sync.Once
}

// binding is what a socket is bound to.
type binding struct {
	local  netip.AddrPort
	device string
	mark   uint32
}

// binder returns the current binding for a socket to an address.
type binder func(to netip.Addr) (binding, error)

// openFlow opens a flow with the binding of bind. Check fails once bind fails or returns another local address.
func openFlow(ctx context.Context, spec Spec, bind binder, to netip.AddrPort) (Flow, error) {
	what := "path " + spec.Name
	b, err := bind(to.Addr())
	if err != nil {
		return nil, err
	}
	if b.device != "" {
		guard(to.Addr())
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
		s.raw.Control(func(fd uintptr) { f.held = hold(int(fd), false) })
	}
	return f, nil
}

func (f *udpFlow) Send(datagrams [][]byte) (int, error) { return f.SendTo(f.to, datagrams) }

func (f *udpFlow) Check() error { return f.check() }

func (f *udpFlow) Close() error {
	f.once.Do(func() {
		forget(f)
		f.bound.letGo(f.raw, f.held, f.to.Addr(), false)
	})
	return f.Socket.Close()
}
