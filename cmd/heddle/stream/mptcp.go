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

// listenBackend listens for peers of one backend.
func listenBackend(ctx context.Context, a config.Admission, o stripe.ListenOptions) (listener, error) {
	l, err := runner.Listen(ctx, "listen", a.Listen, a.Backend != config.BackendStripe)
	if err != nil {
		return nil, err
	}
	if a.Backend != config.BackendStripe {
		return listenMPTCP(l, o)
	}
	s := stripe.NewListener(l, o)
	return listenerOf[*stripe.Conn]{s, s.Accept, s.Sessions}, nil
}
