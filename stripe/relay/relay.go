// Package relay carries the connections of TCP programs over sessions of package stripe: one session a connection.
//
// On one device a [Front] listens for programs, as a plain port or as a SOCKS5 proxy; on the other a [Back] takes each
// session to the program that it is for, or to where a SOCKS5 client asked to go. A [Pool] keeps sessions dialled ahead.
//
// The first byte of a session's stream says what follows: 1, and the bytes of a connection to the one program that is
// served; or 5, which begins a SOCKS5 conversation (RFC 1928).
//
// Do not use it for datagrams, nor to let strangers out: a Back trusts whom the listener lets in.
package relay

import (
	"context"
	"errors"
	"io"
	"net"

	"heddle/internal/netutil"
	"heddle/stripe"
)

// Session is what a [stripe.Conn] does for a relay.
type Session interface {
	net.Conn
	CloseWrite() error
	Abort(why string)
	Status() stripe.Status
}

// LetIn waits until the other side has let a session in, where the session tells; else it ends it.
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

// plain is the first byte of a session to the one program that is served. SOCKS5 begins with its version.
const plain = 1

// program is the connection of a program: TCP, or a unix socket.
type program interface {
	net.Conn
	CloseWrite() error
}

// join carries bytes between a session and a program until both directions have ended. Where one breaks, both sides
// learn that the stream is not whole: the session is aborted and the program's connection is reset. in is where the
// program's bytes come from, which may have some of them already.
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

// reason is what the other side may know of an error: not this machine's addresses.
func reason(err error) string {
	if e, ok := errors.AsType[*net.OpError](err); ok {
		return "the program's connection: " + e.Err.Error()
	}
	return "the connection broke"
}
