package bridge

import (
	"context"
	"fmt"
	"io"
	"net"
	"testing"

	"heddle/disguise/client"
	"heddle/internal/cputest"
	"heddle/internal/tcptest"
)

// BenchmarkBridge moves bytes to a target by a link of the cover random over loopback, at most at the speed of the plain TCP
// connection behind the bridge. cpu-ns/B is the processor time of client, bridge, target and kernel for one byte: 4 ns are 2 Gbit/s
// for each core and side if the sides share the work evenly.
func BenchmarkBridge(b *testing.B) {
	for _, conns := range []int{1, 4} {
		b.Run(fmt.Sprintf("conns=%d", conns), func(b *testing.B) {
			arrived := make(chan int64, 1)
			at := tcptest.Serve(b, func(c *net.TCPConn) {
				n, _ := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{c}, make([]byte, 256<<10))
				arrived <- n
			})
			s := start(b, func(o *Options) { o.Target = to(at) })
			o := s.options()
			o.Connections = conns
			c, err := client.Dial(context.Background(), o)
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			data := make([]byte, 1<<20)
			b.SetBytes(int64(len(data)))
			b.ResetTimer()
			used := cputest.Report(b, "B")
			for range b.N {
				if _, err := c.Write(data); err != nil {
					b.Fatal(err)
				}
			}
			if err := c.CloseWrite(); err != nil {
				b.Fatal(err)
			}
			if n := <-arrived; n != int64(b.N*len(data)) {
				b.Fatalf("%d bytes of %d arrived", n, b.N*len(data))
			}
			b.StopTimer()
			used(b.N * len(data))
		})
	}
}
