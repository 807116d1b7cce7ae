package stream

import (
	"context"
	"net"
	"net/netip"
	"sync"

	"heddle/cmd/heddle/internal/control"
	"heddle/config"
	"heddle/overlay/lease"
	"heddle/path"
	"heddle/stripe"
	"heddle/stripe/mptcp"
)

type kernelSession struct {
	*mptcp.Conn
	release func()
}

// dialKernel leases a port at each node in mode nat, and connects through all of them with the kernel's MPTCP. The
// leases end with the session, or [lease.TTL] after a kill.
func dialKernel(ctx context.Context, s config.Stripe, o stripe.Options, to netip.AddrPort) (Session, error) {
	via, err := specs(s.Via)
	if err != nil {
		return nil, err
	}
	beside, err := specs(s.Path)
	if err != nil {
		return nil, err
	}
	// Policy rules map a subflow's source address to its node.
	bySource := s.Backend == config.BackendMPTCPNAT
	leases, err := lease.Take(ctx, via, beside, lease.Options{Identity: o.Identity, To: to, BySource: bySource, Log: o.Log})
	if err != nil {
		return nil, err
	}
	kernel := mptcp.Options{Identity: o.Identity, Peer: o.Peer, Service: o.Service, MinPaths: o.MinPaths, Degrade: o.Degrade,
		Patience: o.Patience, SetPathManager: s.SetPathManager, Log: o.Log, KeyLog: o.KeyLog}
	for _, m := range leases.Members {
		f := mptcp.Subflow{Name: m.Name, To: m.At(), From: m.From(), Device: m.Device}
		if bySource {
			f.To, f.Through = to, f.To.Addr()
		}
		kernel.Subflows = append(kernel.Subflows, f)
	}
	if s.SetPathManager {
		kernel.RunDir, err = control.OwnDir()
	}
	var c *mptcp.Conn
	if err == nil {
		c, err = mptcp.Dial(ctx, kernel)
	}
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

// listenMPTCP accepts streams of the kernel's MPTCP.
func listenMPTCP(l net.Listener, o stripe.ListenOptions) (listener[Session], error) {
	s, err := mptcp.NewListener(l, o)
	if err != nil {
		l.Close()
		return nil, err
	}
	return anyListener[*mptcp.Conn]{s}, nil
}
