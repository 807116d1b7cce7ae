// Package cover defines what carries the blocks of a disguised link. Each kind of cover is a package below this one.
package cover

import (
	"context"
	"errors"
	"net"
)

// Feed is the chopper's side of one cover connection. Its methods may run beside each other, each of them once at a time.
type Feed interface {
	// Wait returns how many bytes of blocks wait to be sent, as soon as some do. It fails when the link ended, or ctx did. When
	// the ctx of the first call ends, the connection sends no more: other connections carry what waits.
	Wait(ctx context.Context) (bytes int, err error)
	// Fill fills b, of at least block.Overhead bytes, with what waits, and then with padding. It returns how many bytes of b
	// were not padding. It never blocks.
	Fill(b []byte) (useful int, err error)
	// Take takes bytes that arrived: the next part of the stream, or one datagram. It may change b, and does not keep it. On an
	// error the connection is of no use, except on [ErrForeign].
	Take(b []byte) error
}

// Gauge is a [Feed] that tells how much waits.
type Gauge interface {
	Feed
	// Waiting returns how many bytes of blocks the next Fill could send. Unlike Wait it does not claim them for this connection.
	Waiting() int
	// Taken returns how many bytes of the stream arrived on the connection.
	Taken() uint64
	// Path names the path by which the connection leaves. It returns "" if the path is not known.
	Path() string
	// Route is the same for all connections of a link by one path. It returns nil if the path is not known.
	Route() any
}

// ErrForeign says that a datagram holds nothing of the link. Anybody may send some, so they show nothing of the peer.
var ErrForeign = errors.New("the datagram holds nothing of this link")

// Cover shapes what one end of a cover connection sends.
type Cover interface {
	// Carry moves blocks between c and f until the life of the connection ends, which returns nil, or it breaks. A cover of
	// datagrams gets a connection whose Read and Write move whole datagrams. The caller closes c.
	Carry(ctx context.Context, c net.Conn, f Feed) error
}
