package stripe

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"testing"

	"heddle/identity"
	"heddle/internal/tlsbatch"
	"heddle/path"
)

// loopback gives both ends of a session over so many addresses of this machine.
func loopback(t testing.TB, n int, change func(*Options)) (client, server *Conn) {
	t.Helper()
	var config net.ListenConfig
	config.SetMultipathTCP(false)
	l, err := config.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	device, err := identity.New()
	if err != nil {
		t.Fatal(err)
	}
	sl := NewListener(l, ListenOptions{Identity: device, Accept: func(k identity.Key) error { return nil }})
	t.Cleanup(func() { sl.Close() })
	o := Options{To: path.At(l.Addr().(*net.TCPAddr).AddrPort()), Identity: device, Peer: device.Key()}
	for i := range n {
		way, err := path.New(path.Spec{Name: fmt.Sprint(i), Kind: "src", Arg: netip.AddrFrom4([4]byte{127, 0, 0, 1}).String()}, path.Options{})
		if err != nil {
			t.Fatal(err)
		}
		o.Paths = append(o.Paths, Path{fmt.Sprint(i), way})
	}
	change(&o)
	if client, err = Dial(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if server, err = sl.Accept(); err != nil {
		t.Fatal(err)
	}
	return client, server
}

// The world as it is: TCP of the kernel, and paths of the kind src.
func TestLoopback(t *testing.T) {
	client, server := loopback(t, 3, func(o *Options) { o.Shares = "2of3" })
	both(t, client, server, noise(1, 5<<20), noise(2, 3<<20), 100_000)
	closeBoth(t, client, server)
}

func BenchmarkStripe(b *testing.B) {
	for _, c := range []struct {
		shares, schedule string
		paths, segment   int
	}{
		{"none", Strict, 1, 0}, {"none", Strict, 2, 0}, {"none", Fast, 2, 0}, {"none", Strict, 4, 0}, {"none", Strict, 2, 1448},
		{"2of3", "", 3, 0}, {"shamir:2of3", "", 3, 0}, {"xor:3", "", 3, 0},
	} {
		b.Run(fmt.Sprintf("%s/%s/%dpaths/%d", c.shares, c.schedule, c.paths, c.segment), func(b *testing.B) {
			client, server := loopback(b, c.paths, func(o *Options) { o.Shares, o.Schedule, o.Segment = c.shares, c.schedule, c.segment })
			done := make(chan int64, 1)
			go func() {
				n, _ := io.CopyBuffer(struct{ io.Writer }{io.Discard}, server, make([]byte, 128<<10))
				done <- n
			}()
			piece := noise(1, 128<<10)
			b.SetBytes(int64(len(piece)))
			n := int64(0)
			for b.Loop() {
				if _, err := client.Write(piece); err != nil {
					b.Fatal(err)
				}
				n += int64(len(piece))
			}
			if err := client.CloseWrite(); err != nil {
				b.Fatal(err)
			}
			if got := <-done; got != n {
				b.Fatalf("%d bytes of %d", got, n)
			}
			go server.Close()
			if err := client.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// BenchmarkTLS is one TLS connection, for comparison.
func BenchmarkTLS(b *testing.B) {
	device, err := identity.New()
	if err != nil {
		b.Fatal(err)
	}
	serving, err := device.Server(func(identity.Key) error { return nil }, Protocol)
	if err != nil {
		b.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	done := make(chan int64, 1)
	go func() {
		raw, err := l.Accept()
		if err != nil {
			return
		}
		n, _ := io.CopyBuffer(struct{ io.Writer }{io.Discard}, newLink(raw, tlsbatch.Server(raw, serving)).tls, make([]byte, 128<<10))
		done <- n
	}()
	raw, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	config, err := device.Client(device.Key(), Protocol)
	if err != nil {
		b.Fatal(err)
	}
	k := newLink(raw, tlsbatch.Client(raw, config))
	piece := noise(1, 128<<10)
	b.SetBytes(int64(len(piece)))
	for b.Loop() {
		if _, err := k.tls.Write(piece); err != nil {
			b.Fatal(err)
		}
	}
	k.tls.Close()
	<-done
}
