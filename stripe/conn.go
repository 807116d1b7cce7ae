package stripe

import (
	"context"
	"net"
	"time"

	"heddle/path/identity"
)

// Conn is one session. Read and Write may run concurrently with each other and with themselves.
type Conn struct{}

var _ net.Conn = (*Conn)(nil)

func dial(ctx context.Context, o Options) (*Conn, error) { return nil, net.ErrClosed }

// Wait blocks until the peer has let the session in, or says why not.
func (c *Conn) Wait(ctx context.Context) error { return net.ErrClosed }

// Read gives what arrived, in order. It returns [io.EOF] only once the peer ended its stream and all of it arrived; a
// session that broke off gives another error.
func (c *Conn) Read(p []byte) (int, error) { return 0, net.ErrClosed }

// Write takes p for sending, and returns once all of it is taken. It blocks while too few paths are up.
func (c *Conn) Write(p []byte) (int, error) { return 0, net.ErrClosed }

// CloseWrite ends this side's stream; the peer may go on with its own.
func (c *Conn) CloseWrite() error { return net.ErrClosed }

// Close ends the session. It first waits until the peer has all that was written, as long as Patience; its error says that
// this was not proved. What the peer still sends is thrown away.
func (c *Conn) Close() error { return net.ErrClosed }

// Abort ends the session at once and tells the peer why, as far as it is still reached.
func (c *Conn) Abort(why string) {}

// Peer is the key that the other side proved on every leg.
func (c *Conn) Peer() identity.Key { return identity.Key{} }

// Service is what the session was asked for.
func (c *Conn) Service() string { return "" }

// Status says how the session is.
func (c *Conn) Status() Status { return Status{} }

// Claim says in a line what the striping hides and what it does not.
func (c *Conn) Claim() string { return "" }

// LocalAddr is the address of one of the legs at this side.
func (c *Conn) LocalAddr() net.Addr { return nil }

// RemoteAddr is what the session was dialled to, or the address that one of its legs came from.
func (c *Conn) RemoteAddr() net.Addr { return nil }

// SetDeadline sets the deadlines for reading and for writing.
func (c *Conn) SetDeadline(t time.Time) error { return nil }

// SetReadDeadline bounds how long Read waits.
func (c *Conn) SetReadDeadline(t time.Time) error { return nil }

// SetWriteDeadline bounds how long Write waits.
func (c *Conn) SetWriteDeadline(t time.Time) error { return nil }
