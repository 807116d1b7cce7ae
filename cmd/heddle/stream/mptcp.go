package stream

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync"

	"heddle/config"
	"heddle/identity"
	"heddle/overlay/lease"
	"heddle/path"
	"heddle/stripe"
	"heddle/stripe/mptcp"
	"heddle/stripe/relay"
)

// kernelStream is a stream by the kernel's MPTCP through nodes in mode nat: `--backend mptcp` and `--backend mptcp-nat`.
type kernelStream struct {
	stripe   config.Stripe
	identity identity.Identity
	service  string
	keylog   io.Writer // or nil
	log      *slog.Logger
}

func newKernelStream(s config.Stripe, id identity.Identity, service string, keylog io.Writer, log *slog.Logger) *kernelStream {
	return &kernelStream{s, id, service, keylog, log}
}

// bySource reports that a subflow's node follows from the address that it leaves from, by rules at this machine.
func (k kernelStream) bySource() bool { return k.stripe.Backend == config.BackendMPTCPNAT }

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

// Session is a session of either backend.
type Session interface {
	relay.Session
	Claim() string
	Peer() identity.Key
}

// listener takes streams of one backend.
type listener interface {
	Accept() (Session, error)
	Sessions() []Session
	Addr() net.Addr
	Close() error
}

// listenerOf makes the listener of a backend a [listener].
type listenerOf[C Session] struct {
	port
	accept   func() (C, error)
	sessions func() []C
}

type port interface {
	Addr() net.Addr
	Close() error
}

func (l listenerOf[C]) Accept() (Session, error) {
	c, err := l.accept()
	if err != nil {
		return nil, err // not a C that is nil
	}
	return c, nil
}

func (l listenerOf[C]) Sessions() (all []Session) {
	for _, c := range l.sessions() {
		all = append(all, c)
	}
	return all
}

// listenBackend listens for peers of one backend. To MPTCP, a member of a stripe is not a path.
func listenBackend(ctx context.Context, a config.Admission, o stripe.ListenOptions) (listener, error) {
	if a.Backend == config.BackendStripe {
		l, err := listenStream(ctx, a.Listen, "listen")
		if err != nil {
			return nil, err
		}
		s := stripe.NewListener(l, o)
		return listenerOf[*stripe.Conn]{s, s.Accept, s.Sessions}, nil
	}
	var c net.ListenConfig
	c.SetMultipathTCP(true)
	l, err := c.Listen(ctx, path.Family("tcp", a.Listen), a.Listen)
	if err != nil {
		return nil, &path.Error{What: "listen " + a.Listen, Why: "it cannot listen there", Err: err, Hint: "does another program listen there?"}
	}
	s, err := mptcp.NewListener(l, mptcp.ListenOptions{Identity: o.Identity, Accept: o.Accept, Service: o.Service, MaxSessions: o.MaxSessions, Log: o.Log, KeyLog: o.KeyLog})
	if err != nil {
		l.Close()
		return nil, err
	}
	return listenerOf[*mptcp.Conn]{s, s.Accept, s.Sessions}, nil
}
