package link

import (
	"context"
	"fmt"
	"io"
	"testing"
	"time"

	"heddle/disguise/block"
	"heddle/internal/cputest"
)

// BenchmarkLink moves bytes one way between two links over pipes in memory. cpu-ns/B is the processor time of both sides for one
// byte: 4 ns are 2 Gbit/s for each core and side if the sides share the work evenly.
func BenchmarkLink(b *testing.B) {
	for _, c := range []struct{ conns, size int }{{1, 1500}, {1, 16 << 10}, {1, 128 << 10}, {4, 64 << 10}, {16, 16 << 10}} {
		b.Run(fmt.Sprintf("conns=%d/size=%d", c.conns, c.size), func(b *testing.B) {
			w := newWorld(b, Options{})
			w.bench(c.conns, c.size)
			data := content(1<<20, 1)
			b.SetBytes(int64(len(data)))
			received := make(chan error, 1)
			go func() {
				_, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{w.bridge}, make([]byte, 256<<10))
				received <- err
			}()
			b.ReportAllocs()
			b.ResetTimer()
			used := cputest.Report(b, "B")
			for range b.N {
				if _, err := w.client.Write(data); err != nil {
					b.Fatal(err)
				}
			}
			_ = w.client.CloseWrite()
			if err := <-received; err != nil {
				b.Error(err)
			}
			b.StopTimer()
			used(b.N * len(data))
			w.client.Reset(Closed)
			w.bridge.Reset(Closed)
		})
	}
}

// bench opens a link whose connections reuse their buffers.
func (w *world) bench(conns, size int) {
	l, _, end := w.open(line{})
	for !l.Stats().PostQuantum {
		time.Sleep(time.Millisecond)
	}
	w.other()
	for range conns {
		c, err := l.Join([]byte{1}, false)
		if err != nil {
			w.t.Fatal(err)
		}
		head := make([]byte, 4096)
		if _, err := c.Fill(head); err != nil {
			w.t.Fatal(err)
		}
		far, rest, err := w.accept(head, false)
		if err != nil {
			w.t.Fatal(err)
		}
		if err := far.Take(rest); err != nil {
			w.t.Fatal(err)
		}
		go carry(c, far, size)
		go carry(far, c, size)
	}
	end(nil)
	w.joins.Wait()
}

// carry is a pipe that holds one buffer.
func carry(from, to *Conn, size int) {
	full, empty := make(chan []byte, 2), make(chan []byte, 2)
	empty <- make([]byte, size)
	empty <- make([]byte, size)
	go func() {
		for b := range full {
			_ = to.Take(b)
			empty <- b[:size]
		}
	}()
	defer close(full)
	for b := range empty {
		n, err := from.Wait(context.Background())
		if err != nil {
			return
		}
		b = b[:min(size, max(n, block.Overhead))]
		if _, err := from.Fill(b); err != nil {
			return
		}
		full <- b
	}
}
