package tenant

import (
	"context"
	"crypto/tls"
	"net"

	"heddle/internal/connlimit"
	"heddle/internal/netutil"
	"heddle/pseudonym/gateway"
	"heddle/pseudonym/mutual"
)

// streamProtocols are the names in ALPN that a client of a server other than a web server may ask for. A browser, which asks for HTTP, is
// refused: a page of another site could make it send text that such a server obeys.
var streamProtocols = []string{"imap", "pop3", "managesieve", "postgresql", "xmpp-client", "irc", "mqtt", "nntp", "ftp", "dot"}

// serveStream passes what clients send within TLS to the site's server, whatever that speaks. No capability is needed: a page cannot make
// a browser do this.
func (s *Sidecar) serveStream(ctx context.Context, l net.Listener) error {
	return s.names.Serve(ctx, gateway.Introduced(l, s.o.Gateways), connlimit.NewPlaces(clients), func(c *tls.Conn, _ *mutual.Entry) {
		defer c.Close()
		to, err := dialStream(ctx, s.o.Stream)
		if err != nil {
			s.o.Log.Warn("the site's server cannot be reached", "error", err)
			return
		}
		defer to.Close()
		_, _, _ = netutil.Pipe(ctx, netutil.Side{Reader: c, Writer: c}, netutil.Side{Reader: to, Writer: to}, func(error) { c.Close(); to.Close() })
	})
}

func dialStream(ctx context.Context, at string) (net.Conn, error) {
	network, at := netutil.Network(at)
	ctx, cancel := context.WithTimeout(ctx, dialFor)
	defer cancel()
	return (&net.Dialer{}).DialContext(ctx, network, at)
}
