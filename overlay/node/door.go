package node

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"

	"heddle/internal/connlimit"
	"heddle/internal/tlsbatch"
)

// door is a TLS listener that bounds the connections without a stream.
type door struct {
	net.Listener
	tls   *tls.Config
	crowd *connlimit.Places
}

func (d *door) Accept() (net.Conn, error) {
	c, err := d.Listener.Accept()
	if err != nil {
		return nil, err
	}
	place := d.crowd.Enter(c)
	return &visitor{Conn: tlsbatch.Server(place, d.tls), place: place}, nil
}

// visitor is a connection that holds a place at the door until it carries a stream, which is bounded per holder, or closes.
// Its first read includes the TLS handshake, which so counts towards a request's time. It is no [tls.Conn], for which
// net/http would want a protocol that it knows.
type visitor struct {
	*tlsbatch.Conn
	place *connlimit.Place
}

func (v *visitor) Close() error {
	v.place.Leave()
	return v.Conn.Close()
}

type visitorKey struct{}

func withVisitor(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, visitorKey{}, c)
}

// proved reports to the door that the peer of a request over TCP showed a key or grant that the node accepts.
func proved(r *http.Request) {
	if v := visitorOf(r); v != nil {
		v.place.Proved()
	}
}

// visitorOf returns the connection of a request over TCP, nil for one over QUIC.
func visitorOf(r *http.Request) *visitor {
	v, _ := r.Context().Value(visitorKey{}).(*visitor)
	return v
}
