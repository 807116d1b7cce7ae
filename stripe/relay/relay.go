// Package relay carries connections of TCP programs over sessions of package stripe, one session a connection.
//
// A [Front] listens for programs, as a plain port or as a SOCKS5 proxy. On the other device a [Back] connects each session
// to the served program or to the target of the SOCKS5 client. A [Pool] keeps sessions dialled ahead. A session's stream
// begins with 1 and then the bytes for the served program, or with 5, the start of a SOCKS5 conversation (RFC 1928).
//
// A Back trusts every peer that the listener admits.
package relay

import (
	"context"
	"errors"
	"io"
	"net"

	"heddle/internal/netutil"
	"heddle/stripe"
)

// Session is the part of [stripe.Conn] that a relay uses.
type Session interface {
	net.Conn
	CloseWrite() error
	Abort(why string)
	Status() stripe.Status
}

// LetIn waits until the other side has admitted a session, if the session can tell, and aborts it on failure.
func LetIn(ctx context.Context, s Session) error {
	told, ok := s.(interface{ Wait(context.Context) error })
	if !ok {
		return nil
	}
	err := told.Wait(ctx)
	if err != nil {
		s.Abort("it was not let in")
	}
	return err
}

// plain is the first byte of a session to the served program. SOCKS5 begins with its version.
const plain = 1

// program is a program's TCP or unix connection.
type program interface {
	net.Conn
	CloseWrite() error
}

// join copies bytes between a session and a program until both directions have ended. If one breaks, it aborts the session
// and resets the program's connection, so that both learn that the stream is incomplete. in gives the program's bytes, some
// of which may be buffered.
func join(ctx context.Context, s Session, p program, in io.Reader) error {
	_, _, err := netutil.Pipe(ctx, netutil.Side{Reader: in, Writer: p}, netutil.Side{Reader: s, Writer: s}, func(why error) {
		netutil.Reset(p)
		if ctx.Err() != nil {
			s.Abort("the relay ends")
		} else {
			s.Abort(reason(why))
		}
	})
	if err != nil {
		return err
	}
	p.Close()
	return s.Close()
}

// reason describes an error to the other side without this machine's addresses.
func reason(err error) string {
	if e, ok := errors.AsType[*net.OpError](err); ok {
		return "the program's connection: " + e.Err.Error()
	}
	return "the connection broke"
}
