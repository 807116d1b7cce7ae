// Package tcptest has TCP servers on loopback for tests. Do not import it outside tests.
package tcptest

import (
	"io"
	"net"
	"net/netip"
	"testing"
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

// Echo sends back what arrives, and ends when the peer does.
func Echo(c *net.TCPConn) { _, _ = io.Copy(c, c) }
