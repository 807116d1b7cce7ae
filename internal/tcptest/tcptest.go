// Package tcptest has TCP servers on loopback for tests. Do not import it outside tests.
package tcptest

import (
	"io"
	"net"
	"net/netip"
	"testing"

	"heddle/internal/netutil"
)

// Serve handles each connection in a goroutine, and closes it then. It returns the server's address, and serves until the test ends.
func Serve(t testing.TB, handle func(*net.TCPConn)) netip.AddrPort {
	t.Helper()
	l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.AcceptTCP()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				handle(c)
			}()
		}
	}()
	return l.Addr().(*net.TCPAddr).AddrPort()
}

// Nobody returns an address where nobody listens until the test ends, or only who means to: [netutil.Reserve].
func Nobody(t testing.TB) netip.AddrPort {
	t.Helper()
	at, err := netutil.Reserve(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// Echo sends back what arrives, and ends when the peer does.
func Echo(c *net.TCPConn) { _, _ = io.Copy(c, c) }
