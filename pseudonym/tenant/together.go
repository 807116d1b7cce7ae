package tenant

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"

	"heddle/internal/tlsbatch"
	"heddle/pseudonym/mutual"
)

// belowKey is the key of the context's value that has what is below a connection's TLS.
type belowKey struct{}

func withBelow(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, belowKey{}, mutual.Below(c.(*tls.Conn)))
}

// together writes what is large by few calls of the system, where crypto/tls makes one for each record of 16 KiB. The buffers for that are bounded as those for copying are.
type together struct {
	http.ResponseWriter
	below  *tlsbatch.Out
	places chan struct{}
}

// togetherFrom is the least write, in bytes, whose records leave together. Records of a smaller one leave alone: the client gets the first one while the sidecar encrypts the next.
const togetherFrom = largeBuffer / 2

// Write implements [http.ResponseWriter].
func (t together) Write(b []byte) (n int, err error) {
	if len(b) < togetherFrom {
		return t.ResponseWriter.Write(b)
	}
	select {
	case t.places <- struct{}{}:
		defer func() { <-t.places }()
	default:
		return t.ResponseWriter.Write(b)
	}
	err = t.below.Together(func() error {
		n, err = t.ResponseWriter.Write(b)
		return err
	})
	return n, err
}

// Unwrap is for [http.ResponseController].
func (t together) Unwrap() http.ResponseWriter { return t.ResponseWriter }
