package cover

import (
	"context"
	"net"
)

// Host is a [Factory] whose covers speak a protocol with strangers too, such as a website does. A bridge gives it whole connections. It
// has no other covers over the same transport, since all that begins there is the host's.
type Host interface {
	Factory
	// Host serves one connection until it ends, or ctx does. Clients hide a hello behind its beginning: enter recognises it. The
	// caller closes c.
	Host(ctx context.Context, c net.Conn, enter Enter)
}

// Enter takes the next bytes that a client may have hidden in a connection, from the first ones on. It returns nil while they are not a
// whole hello. Then it returns the feed of the client's link, which took what followed the hello, and the cover for its
// parameters. It fails for a stranger, and must not be called again then.
type Enter func(hidden []byte) (Gauge, Cover, error)
