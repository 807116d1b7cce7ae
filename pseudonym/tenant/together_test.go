package tenant

import (
	"context"
	"crypto/sha256"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"
)

// counter is a listener that counts what is written to its connections.
type counter struct {
	net.Listener
	writes *atomic.Int64
}

func (l counter) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return countedConn{c, l.writes}, err
}

type countedConn struct {
	net.Conn
	writes *atomic.Int64
}

func (c countedConn) Write(p []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(p)
}

// A large answer leaves by fewer calls of the system than it has records. It is whole also if others have all places for that, and by HTTP/2 where the client takes little at a
// time.
func TestLargeAnswers(t *testing.T) {
	const size, records = 8 << 20, 8 << 20 / (16 << 10)
	content := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(content) // it never fails
	v := newVisit(t, Options{Site: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set("Content-Length", strconv.Itoa(size))
		_, _ = w.Write(content) // the client notes what is missing
	})}, "")
	var writes atomic.Int64
	v.at = run(t, func(ctx context.Context, l net.Listener) error { return v.serve(ctx, counter{l, &writes}) })
	for _, one := range []struct {
		name, protocol string
		full           bool // there is no place
		few            bool
	}{{"HTTP/1.1", "http/1.1", false, true}, {"HTTP/1.1 without a place", "http/1.1", true, false}, {"HTTP/2", "h2", false, false}} {
		c := v.browser(t, one.protocol)
		c.Transport.(*http.Transport).HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerConnection: 64 << 10, MaxReceiveBufferPerStream: 64 << 10}
		if one.full {
			for range cap(v.site.places) {
				v.site.places <- struct{}{}
			}
		}
		writes.Store(0)
		q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+v.name+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		r, err := c.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.New()
		if _, err := io.Copy(sum, r.Body); err != nil || [32]byte(sum.Sum(nil)) != sha256.Sum256(content) {
			t.Errorf("%s: other content, or %v", one.name, err)
		}
		r.Body.Close()
		if n := writes.Load(); one.few != (n < records/4) {
			t.Errorf("%s: %d records left by %d calls", one.name, records, n)
		}
		if one.full {
			for range cap(v.site.places) {
				<-v.site.places
			}
		}
		if len(v.site.places) != 0 {
			t.Errorf("%s: %d places are not given back", one.name, len(v.site.places))
		}
	}
}
