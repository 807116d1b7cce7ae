package stream

import (
	"context"
	"net"
	"net/netip"
	"sync"

	"heddle/identity"
	"heddle/overlay/lease"
	"heddle/path"
	"heddle/stripe"
	"heddle/stripe/mptcp"
)

// kernelSession is the stream while it lasts.
type kernelSession struct {
	*mptcp.Conn
	release func()
}

// dialKernel leases a port at each node and connects through all of them. The leases end with the session, or, where this
// program is killed, [lease.TTL] later.
func dialKernel(ctx context.Context, k kernelStream, to netip.AddrPort) (Session, error) {
	via, err := specs(k.stripe.Via)
	if err != nil {
		return nil, err
	}
	beside, err := specs(k.stripe.Path)
	if err != nil {
		return nil, err
	}
	peer, err := identity.ParseKey(k.stripe.Key)
	if err != nil {
		return nil, err
	}
	leases, err := lease.Take(ctx, via, beside, lease.Options{Identity: k.identity, To: to, BySource: k.bySource(), Log: k.log})
	if err != nil {
		return nil, err
	}
	o := mptcp.Options{Identity: k.identity, Peer: peer, Service: k.service, MinPaths: k.stripe.MinPaths, Degrade: k.stripe.Degrade,
		Patience: k.stripe.Patience, SetPathManager: k.stripe.SetPathManager, Log: k.log, KeyLog: k.keylog}
	for _, m := range leases.Members {
		s := mptcp.Subflow{Name: m.Name, To: m.At(), From: m.From(), Device: m.Device}
		if k.bySource() {
			s.To, s.Through = to, s.To.Addr()
		}
		o.Subflows = append(o.Subflows, s)
	}
	c, err := mptcp.Dial(ctx, o)
	if err != nil {
		leases.Release()
		return nil, err
	}
	leases.Keep(c.Done())
	return &kernelSession{c, sync.OnceFunc(leases.Release)}, nil
}

func specs(paths []string) (all []path.Spec, err error) {
	for _, text := range paths {
		spec, err := path.ParseSpec(text)
		if err != nil {
			return nil, err
		}
		all = append(all, spec)
	}
	return all, nil
}

// Close ends the stream in order, and then the leases.
func (s *kernelSession) Close() error {
	defer s.release()
	return s.Conn.Close()
}

// Abort ends the stream and the leases at once.
func (s *kernelSession) Abort(why string) {
	s.Conn.Abort(why)
	s.release()
}

// listenMPTCP takes streams of the kernel's MPTCP.
func listenMPTCP(l net.Listener, o stripe.ListenOptions) (listener, error) {
	s, err := mptcp.NewListener(l, o)
	if err != nil {
		l.Close()
		return nil, err
	}
	return listenerOf[*mptcp.Conn]{s, s.Accept, s.Sessions}, nil
}
