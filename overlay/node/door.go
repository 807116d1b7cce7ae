package node

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"sync"

	"heddle/internal/connlimit"
	"heddle/internal/tlsbatch"
)

// door is a TLS listener that bounds the connections of a source without a stream.
type door struct {
	net.Listener
	tls   *tls.Config
	crowd *connlimit.Limiter[netip.Addr]
}

// Accept closes connections from sources that have too many without a stream.
func (d *door) Accept() (net.Conn, error) {
	for {
		c, err := d.Listener.Accept()
		if err != nil {
			return nil, err
		}
		from := connlimit.SourceOf(c.RemoteAddr())
		if !d.crowd.Acquire(from) {
			c.Close()
			continue
		}
		return &visitor{Conn: tlsbatch.Server(c, d.tls), crowd: d.crowd, from: from}, nil
	}
}

// visitor is a connection that holds a place at the door until it carries a stream, which is bounded per holder, or closes.
// Its first read includes the TLS handshake, which so counts towards a request's time. It is no [tls.Conn], for which
// net/http would want a protocol that it knows.
type visitor struct {
	*tlsbatch.Conn
	crowd *connlimit.Limiter[netip.Addr]
	from  netip.Addr
	once  sync.Once
}

// carries releases the place at the door.
func (v *visitor) carries() { v.once.Do(func() { v.crowd.Release(v.from) }) }

func (v *visitor) Close() error {
	v.carries()
	return v.Conn.Close()
}

type visitorKey struct{}

func withVisitor(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, visitorKey{}, c)
}

// visitorOf returns the connection of a request over TCP, nil for one over QUIC.
func visitorOf(r *http.Request) *visitor {
	v, _ := r.Context().Value(visitorKey{}).(*visitor)
	return v
}
