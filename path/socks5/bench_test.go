package socks5

import (
	"net"
	"testing"

	"heddle/path"
)

// BenchmarkSend compares a burst to loopback with and without the header before each datagram.
func BenchmarkSend(b *testing.B) {
	sink, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		b.Fatal(err)
	}
	defer sink.Close()
	to := sink.LocalAddr().(*net.UDPAddr).AddrPort()
	under, err := path.NewSystem(0).Open(b.Context(), to)
	if err != nil {
		b.Fatal(err)
	}
	near, far := net.Pipe()
	defer far.Close()
	wrapped := newFlow("path p", under, near, to, to)
	defer wrapped.Close()
	burst := make([][]byte, 32)
	for i := range burst {
		burst[i] = make([]byte, 1200)
	}
	for name, f := range map[string]path.Flow{"bare": under, "socks5": wrapped} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(32 * 1200)
			for b.Loop() {
				if _, err := f.Send(burst); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
