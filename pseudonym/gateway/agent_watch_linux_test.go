package gateway

import (
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"

	"heddle/internal/nstest"
)

// accepting is a listener that says when somebody waits for a connection.
type accepting struct {
	net.Listener
	once  *sync.Once
	begun chan bool
}

func (l accepting) Accept() (net.Conn, error) {
	l.once.Do(func() { close(l.begun) })
	return l.Listener.Accept()
}

// listeners returns how many sockets hear of changes to a namespace's routes and devices.
func listeners(t *testing.T, in nstest.Namespace) (n int) {
	t.Helper()
	in.Do(t, func() error {
		text, err := os.ReadFile("/proc/thread-self/net/netlink")
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); len(f) > 3 && f[1] == "0" && f[3] != "00000000" { // rtnetlink, and its groups
				n++
			}
		}
		return err
	})
	return n
}

// An agent that answers in the gateway's place hears of changes to its machine while it serves, so that it need not ask the kernel for each connection.
func TestAgentHearsOfChanges(t *testing.T) {
	for name, c := range map[string]struct {
		direct []netip.Addr
		want   int
	}{"by the gateway": {nil, 0}, "past the gateway": {[]netip.Addr{netip.MustParseAddr("192.0.2.1")}, 1}} {
		t.Run(name, func(t *testing.T) {
			tenant := nstest.New(t)
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			a := &Agent{Identity: tls.Certificate{}, Direct: c.direct}
			ctx, cancel := context.WithCancel(t.Context())
			begun, ended := make(chan bool), make(chan error, 1)
			go func() {
				ended <- tenant.Run(func() error { return a.Serve(ctx, accepting{l, new(sync.Once), begun}) })
			}()
			<-begun
			if n := listeners(t, tenant); n != c.want {
				t.Errorf("%d sockets hear of changes, not %d", n, c.want)
			}
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			if n := listeners(t, tenant); n != 0 {
				t.Errorf("%d sockets hear of changes after the end", n)
			}
		})
	}
}
