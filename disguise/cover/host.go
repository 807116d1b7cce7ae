package cover

import (
	"context"
	"net"
	"net/url"

	"heddle/path"
)

// Host is a [Factory] whose covers speak a protocol with strangers too, such as a website does. A bridge gives it whole connections. It
// has no other covers over the same transport, since all that begins there is the host's.
type Host interface {
	Factory
	// Host serves one connection until it ends, or ctx does. Clients hide a hello behind its beginning: enter recognises it. The
	// caller closes c.
	Host(ctx context.Context, c net.Conn, enter Enter)
}

// Front is how visitors reach a [Host] that is a website.
type Front struct {
	// Behind says that another web server has their connections, and passes requests on by HTTP.
	Behind bool
	// Visitor is the header in which that server says whose a request is. Without one it does not say so.
	Visitor string
	// Origin answers what the host has no answer of its own for. nil is nobody.
	Origin *url.URL
	// ACME is where the host gets its certificate from; nil if it has one.
	ACME *ACME
}

// ACME is an authority that gives certificates to who shows that a name leads to it (RFC 8555).
type ACME struct {
	Dir       string // where the account's key and the certificate are kept
	Authority string // the URL of its directory; "" is [acme.LetsEncryptURL]
}

// Worker is a [Factory] with work of its own beside connections.
type Worker interface {
	// Work works until ctx ends. A bridge calls it when it listens.
	Work(ctx context.Context)
}

// Fronted is a [Host] that can be behind another web server ([Front.Behind]).
type Fronted interface {
	Host
	// Behind serves one connection of the other server until it ends, or ctx does. It carries requests of many visitors. One visitor's
	// requests come by many such connections. The caller closes c.
	Behind(ctx context.Context, c net.Conn, d Door)
}

// Door returns how a visitor enters whose connection another web server has, and what to call when she is gone. Her address is nil if
// it is not known.
type Door func(visitor net.Addr) (enter Enter, gone func())

// HostOf returns the host among the covers over TCP of a bridge, or nil. It fails if there are others beside it.
func HostOf(covers ...Factory) (Host, error) {
	for _, f := range covers {
		if host, ok := f.(Host); ok {
			if len(covers) > 1 {
				return nil, &path.Error{What: "bridge", Why: "a cover that speaks with strangers, such as http or https, leaves no room for others over TCP",
					Hint: "serve it, or the others, at another port: port=PORT"}
			}
			return host, nil
		}
	}
	return nil, nil
}

// Enter takes the next bytes that a client may have hidden in a connection, from the first ones on. It returns nil while they are not a
// whole hello. Then it returns the feed of the client's link, which took what followed the hello, and the cover for its
// parameters. It fails for a stranger, and must not be called again then.
type Enter func(hidden []byte) (Gauge, Cover, error)
