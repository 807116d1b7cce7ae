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

// door is a listener that lets in so many at a time who carry no stream, and speaks TLS with them.
type door struct {
	net.Listener
	tls   *tls.Config
	crowd *connlimit.Limiter[netip.Addr]
}

// Accept turns away who has too many connections that carry no stream.
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

// visitor is a connection that takes a place at the door until it carries a stream, of which each holder has so many, or is
// closed. Its TLS handshake is part of its first read, and so of the time that a request may take. It is no [tls.Conn],
// for which package net/http would want a protocol that it knows.
type visitor struct {
	*tlsbatch.Conn
	crowd *connlimit.Limiter[netip.Addr]
	from  netip.Addr
	once  sync.Once
}

// carries gives the place back.
func (v *visitor) carries() { v.once.Do(func() { v.crowd.Release(v.from) }) }

func (v *visitor) Close() error {
	v.carries()
	return v.Conn.Close()
}

type visitorKey struct{}

func withVisitor(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, visitorKey{}, c)
}

// visitorOf gives the connection of a request over TCP, nil for one over QUIC.
func visitorOf(r *http.Request) *visitor {
	v, _ := r.Context().Value(visitorKey{}).(*visitor)
	return v
}
