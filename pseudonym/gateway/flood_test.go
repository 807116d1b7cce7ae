package gateway

import (
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"heddle/internal/connlimit"
	"heddle/internal/polltest"
	"heddle/pseudonym"
)

// begins opens a connection from an address of loopback, and says the first bytes of a ClientHello that does not end.
func begins(t testing.TB, from, at string, size int) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c, err := d.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(polltest.Patience))
	said := make([]byte, size)
	copy(said, []byte{22, 3, 1, 0x3f, 0, 1, 0, 0x3e, 0xfc, 3, 3}) // a record of almost 16 KiB with one message
	if _, err := c.Write(said); err != nil {
		t.Fatal(err)
	}
	return c
}

// Connections whose first message does not come are bounded for each address, for each network and in all. A client that says its name is served meanwhile.
func TestFloodOfHalfOpenConnections(t *testing.T) {
	l := pseudonym.NewLabel()
	g, at := start(t, &routes{to: map[pseudonym.Label][]string{l: {tenant(t)}}}, nil)
	open := func(want int) {
		t.Helper()
		polltest.Until(t, func() error {
			if got := g.places.Count(); got != want {
				return fmt.Errorf("%d connections are open, want %d", got, want)
			}
			return nil
		})
	}
	most := connlimit.Strangers
	first := begins(t, "127.0.0.1", at, 11)
	for range most.Source {
		begins(t, "127.0.0.1", at, 11)
	}
	open(most.Source)
	if _, err := first.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the oldest connection of an address with too many reads %v", err)
	}
	for i := range most.Network {
		begins(t, fmt.Sprintf("127.0.0.%d", 2+i), at, 11)
	}
	open(most.Network)
	for network := 1; network <= most.All/most.Network; network++ {
		for i := range most.Network {
			begins(t, fmt.Sprintf("127.0.%d.%d", network, 1+i), at, 11)
		}
	}
	open(most.All)
	if _, line, err := reach(t, at, hello(t, zone.Name(l))); err != nil || !strings.Contains(line, zone.Name(l)) {
		t.Errorf("a client gets %q meanwhile, %v", line, err)
	}
}

// BenchmarkHalfOpen measures what a connection takes at the gateway whose first message does not end, after its first bytes and before its last.
func BenchmarkHalfOpen(b *testing.B) {
	for name, size := range map[string]int{"begun": 11, "almost whole": 0x3f00} {
		b.Run(name, func(b *testing.B) {
			const many = 128
			for b.Loop() {
				g, at := start(b, &routes{}, nil)
				before := memory()
				for i := range many {
					begins(b, fmt.Sprintf("127.0.0.%d", 1+i), at, size)
				}
				polltest.Await(b, "all have said something", func() bool { return g.places.Count() == many })
				b.ReportMetric(float64(memory()-before)/many, "B/connection")
			}
		})
	}
}

func memory() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}
