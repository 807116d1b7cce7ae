package tenant

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"sync"
)

// insideURL is where a site is that runs in this process.
var insideURL = &url.URL{Scheme: "http", Host: "inside"}

// inside is a listener whose connections are pipes within this process, so that a site's handler there may do all that one behind a network
// may, such as take over its connection.
type inside struct {
	conns chan net.Conn
	ended chan struct{}
	once  sync.Once
}

func newInside() *inside { return &inside{conns: make(chan net.Conn), ended: make(chan struct{})} }

func (i *inside) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case i.conns <- there:
		return here, nil
	case <-i.ended:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Accept implements [net.Listener].
func (i *inside) Accept() (net.Conn, error) {
	select {
	case c := <-i.conns:
		return c, nil
	case <-i.ended:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener].
func (i *inside) Close() error {
	i.once.Do(func() { close(i.ended) })
	return nil
}

// Addr implements [net.Listener].
func (i *inside) Addr() net.Addr { return &net.UnixAddr{Name: insideURL.Host, Net: "unix"} }

// serve lets a site answer until end is called. The site sees the client's address.
func (i *inside) serve(site http.Handler) (end func()) {
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.RemoteAddr = net.JoinHostPort(r.Header.Get("X-Forwarded-For"), "0")
		site.ServeHTTP(w, r)
	})}
	go func() { _ = server.Serve(i) }()
	return func() { server.Close() }
}
