package stream

import (
	"context"
	"io"
	"log/slog"
	"net"

	"heddle/config"
	"heddle/identity"
	"heddle/path"
	"heddle/stripe"
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
	return listenMPTCP(l, o)
}
