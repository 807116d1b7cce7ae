package bridge

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"runtime"
	"sync/atomic"
	"testing"

	"heddle/internal/connlimit"
	"heddle/internal/polltest"
	"heddle/internal/tcptest"
)

// idler is a stranger's connection in memory, from an address of its own.
type idler struct {
	net.Conn
	number int
}

func (i idler) RemoteAddr() net.Addr {
	return &net.TCPAddr{IP: net.IPv4(10, byte(i.number>>8), byte(i.number), 1), Port: 40000}
}

// Ten thousand idle connections of as many networks get no more places than there are, cost no more memory than those take, and keep nobody out.
func TestIdleCrowdOfAWebsite(t *testing.T) {
	const crowd, mostMemory = 10_000, 96 << 20
	for name := range numbers {
		t.Run(name, func(t *testing.T) {
			s, o := startWeb(t, name, func(o *Options) { o.Target = to(tcptest.Serve(t, tcptest.Echo)) })
			ctx, cancel := context.WithCancel(t.Context())
			before := memory()
			var gone atomic.Int32
			for i := range crowd {
				near, far := net.Pipe()
				t.Cleanup(func() { near.Close() })
				go func() {
					s.enter(ctx, s.main, idler{far, i})
					far.Close()
					gone.Add(1)
				}()
			}
			polltest.Await(t, "all are in, and most are out again", func() bool { return gone.Load() >= int32(crowd-connlimit.Strangers.All) })
			if n := s.Status().Strangers; n > connlimit.Strangers.All {
				t.Errorf("%d strangers have places", n)
			}
			if grown := memory() - before; grown > mostMemory {
				t.Errorf("they take %d bytes", grown)
			} else {
				t.Logf("%d connections take %d bytes", crowd, grown)
			}
			transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
			defer transport.CloseIdleConnections()
			r, err := http.NewRequestWithContext(ctx, "GET", name+"://"+s.at.String()+"/about", nil)
			if err != nil {
				t.Fatal(err)
			}
			a, err := transport.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			defer a.Body.Close()
			if _, err := io.Copy(io.Discard, a.Body); err != nil || a.StatusCode != 200 {
				t.Errorf("another visitor gets %s, %v", a.Status, err)
			}
			exchange(t, opened(t, o), 20_000)
			cancel()
			polltest.Await(t, "all are gone", func() bool { return gone.Load() == crowd })
		})
	}
}

// memory is what the heap and the stacks hold.
func memory() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}
