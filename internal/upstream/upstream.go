// Package upstream is the way of a reverse proxy to the server behind it, whose connections many visitors share.
package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
)

// Transport is an [http.Transport] that uses no connection again on which more came than the answer. net/http looks for that too, but in another
// goroutine: the next visitor's request may be there first, and gets what came as its answer (response splitting, CWE-113). What arrives while the
// next request is on its way is its answer to every proxy of HTTP/1.1. That includes bytes that the reader is just taking from the kernel.
type Transport struct{ http *http.Transport }

// New returns a transport that dials and behaves as t, which is not used otherwise. t needs DialContext.
func New(t *http.Transport) Transport {
	dial := t.DialContext
	t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &conn{Conn: c, changed: sync.NewCond(new(sync.Mutex))}, nil
	}
	return Transport{t}
}

func gotConn(got httptrace.GotConnInfo) {
	c := got.Conn
	if over, ok := c.(*tls.Conn); ok {
		if over.ConnectionState().NegotiatedProtocol == "h2" { // its answers have numbers
			return
		}
		c = over.NetConn()
	}
	c.(*conn).awaitEmpty()
}

// RoundTrip implements [http.RoundTripper].
func (t Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	// WithClientTrace adds to a trace what the context's own trace calls. So a trace of several requests would call each visitor's proxy for all others.
	trace := &httptrace.ClientTrace{GotConn: gotConn}
	return t.http.RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))
}

// CloseIdleConnections is for [http.Client].
func (t Transport) CloseIdleConnections() { t.http.CloseIdleConnections() }

// conn knows whether its reader waits for the network. The reader does so only when it has used all that came: net/http reads again after an
// answer, and ends the connection if it finds more than the answer in its buffer.
type conn struct {
	net.Conn
	changed        *sync.Cond
	waiting, ended bool
}

// set changes the state, of which the end is final, and wakes who waits for it.
func (c *conn) set(waiting, ended bool) {
	c.changed.L.Lock()
	defer c.changed.L.Unlock()
	c.waiting, c.ended = waiting, c.ended || ended
	c.changed.Broadcast()
}

// Read implements [net.Conn].
func (c *conn) Read(b []byte) (int, error) {
	c.set(true, false)
	n, err := c.Conn.Read(b)
	c.set(false, err != nil)
	return n, err
}

// Close implements [net.Conn].
func (c *conn) Close() error {
	c.set(false, true)
	return c.Conn.Close()
}

// CloseWrite ends this direction, which a proxy does where the client of an upgraded connection did.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return fmt.Errorf("one direction of %T: %w", c.Conn, errors.ErrUnsupported)
}

// awaitEmpty waits until all that came was used, or the connection is at its end.
func (c *conn) awaitEmpty() {
	c.changed.L.Lock()
	defer c.changed.L.Unlock()
	for !c.waiting && !c.ended {
		c.changed.Wait()
	}
}
