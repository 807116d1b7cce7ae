package wireguard

import (
	"errors"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
)

// BenchmarkTunnel sends datagrams of 1,200 bytes through a tunnel over loopback, whose other end is in this process too,
// and counts what arrives.
func BenchmarkTunnel(b *testing.B) {
	s := newServer(b)
	here := fullAddress(echo4.Addr(), 9)
	sink, err := gonet.DialUDP(s.inside.stack, &here, nil, protocolOf(echo4.Addr()))
	if err != nil {
		b.Fatal(err)
	}
	var arrived atomic.Int64
	more := make(chan struct{}, 1)
	go func() {
		buf := make([]byte, 1<<16)
		for {
			n, err := sink.Read(buf)
			if err != nil {
				return
			}
			arrived.Add(int64(n))
			select {
			case more <- struct{}{}:
			default:
			}
		}
	}()
	f, err := newTunnelPath(b, s.file(b, everything), nil).Open(b.Context(), netip.AddrPortFrom(echo4.Addr(), 9))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	burst := make([][]byte, 32)
	for i := range burst {
		burst[i] = make([]byte, 1200)
	}
	const window = 96 * 1200 // bytes under way, fewer than any buffer on the way holds
	b.SetBytes(32 * 1200)
	var sent, lost int64
	for b.Loop() {
		n, err := f.Send(burst)
		if err != nil && !errors.Is(err, unix.ENOBUFS) {
			b.Fatal(err)
		}
		sent += int64(n) * 1200
		for sent-lost-arrived.Load() > window {
			select {
			case <-more:
			case <-time.After(100 * time.Millisecond):
				lost = sent - arrived.Load()
			}
		}
	}
	b.ReportMetric(float64(lost)/float64(sent), "lost/sent")
}
