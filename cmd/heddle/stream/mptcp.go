package stream

import (
	"context"
	"net"

	"heddle/cmd/heddle/internal/runner"
	"heddle/config"
	"heddle/identity"
	"heddle/stripe"
	"heddle/stripe/relay"
)

// Session is a session of either backend.
type Session interface {
	relay.Session
	Claim() string
	Peer() identity.Key
}

// listener accepts streams of one backend, or of either.
type listener[C Session] interface {
	Accept() (C, error)
	Sessions() []C
	Addr() net.Addr
	Close() error
}

// anyListener adapts the listener of one backend to [Session].
type anyListener[C Session] struct{ listener[C] }

func (l anyListener[C]) Accept() (Session, error) {
	c, err := l.listener.Accept()
	if err != nil {
		return nil, err // an untyped nil, not a nil C
	}
	return c, nil
}

func (l anyListener[C]) Sessions() (all []Session) {
	for _, c := range l.listener.Sessions() {
		all = append(all, c)
	}
	return all
}

// listenBackend listens for peers of one backend.
func listenBackend(ctx context.Context, a config.Admission, o stripe.ListenOptions) (listener[Session], error) {
	l, err := runner.Listen(ctx, "listen", a.Listen, a.Backend != config.BackendStripe)
	if err != nil {
		return nil, err
	}
	if a.Backend != config.BackendStripe {
		return listenMPTCP(l, o)
	}
	return anyListener[*stripe.Conn]{stripe.NewListener(l, o)}, nil
}
