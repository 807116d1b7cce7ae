package bridge

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"heddle/disguise/client"
	"heddle/disguise/cover"
	"heddle/disguise/cover/embed"
	"heddle/disguise/handshake"
	"heddle/internal/netutil"
	"heddle/internal/polltest"
	"heddle/internal/tcptest"
	"heddle/path"
	"heddle/schedule"
)

// stream is a trace of 600 bytes each way each 10 ms. Its time is real, and a starved machine still keeps up with it.
func stream(t *testing.T) cover.Factory {
	t.Helper()
	one := embed.Trace{Name: "stream", Datagrams: true, Loop: true}
	one.Up = embed.Header{{Kind: embed.Literal, Bytes: 1, Value: []byte{0x80}}, {Kind: embed.Counter, Bytes: 2, Step: 1}}
	one.Down = one.Up
	for i := range 200 {
		at := time.Duration(i) * 10 * time.Millisecond
		one.Packets = append(one.Packets, embed.Packet{At: at, Size: 600}, embed.Packet{At: at + time.Millisecond, Size: 600, Down: true})
	}
	f, err := embed.FactoryOf(&embed.Database{Traces: []embed.Trace{one}}, cover.Options{Datagrams: true})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// startOverUDP starts a bridge whose only door is for datagrams, and returns a client's options beside it.
func startOverUDP(t *testing.T) (*setup, client.Options) {
	t.Helper()
	shapes := stream(t)
	s := start(t, func(o *Options) {
		o.Target = to(tcptest.Serve(t, tcptest.Echo))
		o.Covers, o.DatagramCovers = nil, map[byte]cover.Factory{embed.Number: shapes}
	})
	socket, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	s.line.Address = netutil.AddrPort(socket.LocalAddr())
	ended := make(chan error, 1)
	go func() { ended <- s.Bridge.Serve(t.Context(), s.Packets(socket)) }()
	t.Cleanup(func() {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	o := s.options()
	o.Covers, o.Datagrams = only(shapes), true
	return s, o
}

// lossyTo passes datagrams between clients and a bridge, and loses, repeats and swaps some. It returns its address.
func lossyTo(t *testing.T, bridge netip.AddrPort) netip.AddrPort {
	t.Helper()
	l, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	pass := func(from *net.UDPConn, send func([]byte)) {
		var held []byte
		for buffer := make([]byte, 2000); ; {
			n, err := from.Read(buffer)
			if err != nil {
				return
			}
			switch rand.IntN(25) {
			case 0:
			case 1:
				send(buffer[:n])
				send(buffer[:n])
			case 2:
				held = bytes.Clone(buffer[:n])
			default:
				if send(buffer[:n]); held != nil {
					send(held)
					held = nil
				}
			}
		}
	}
	go func() {
		to := map[netip.AddrPort]*net.UDPConn{}
		for buffer := make([]byte, 2000); ; {
			n, from, err := l.ReadFromUDPAddrPort(buffer)
			if err != nil {
				for _, c := range to {
					c.Close()
				}
				return
			}
			if to[from] == nil {
				if to[from], err = net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(bridge)); err != nil {
					return
				}
				go pass(to[from], func(b []byte) { _, _ = l.WriteToUDPAddrPort(b, from) })
			}
			if rand.IntN(25) > 0 {
				_, _ = to[from].Write(buffer[:n])
			}
		}
	}()
	return netutil.AddrPort(l.LocalAddr())
}

// A link over datagrams delivers its bytes once and in order, also if the network loses, repeats and swaps some.
func TestOverUDP(t *testing.T) {
	t.Parallel()
	s, o := startOverUDP(t)
	for _, at := range []netip.AddrPort{s.line.Address, lossyTo(t, s.line.Address)} {
		o.Line.Address = at
		c := opened(t, o)
		exchange(t, c, 75_000)
		c.Close()
	}
	polltest.Await(t, "both links end", func() bool { return len(s.Status().Links) == 0 })
}

// The bridge does not answer a stranger without its bridge line, nor a replay, and keeps nothing of either.
func TestStrangersOverUDP(t *testing.T) {
	s, o := startOverUDP(t)
	stranger, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(s.line.Address))
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	id, err := handshake.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	_, parameters, err := o.Covers[0].Client()
	if err != nil {
		t.Fatal(err)
	}
	hello := func(key handshake.PublicKey) []byte {
		p, err := handshake.Start(key, handshake.Hello{Mode: handshake.OneTarget, Time: time.Now(), Cover: parameters}, 600)
		if err != nil {
			t.Fatal(err)
		}
		return append([]byte{0x80, 0, 0}, p.Bytes()...)
	}
	own := hello(s.line.Key)
	client, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(s.line.Address))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	buffer := make([]byte, 2000)
	if _, err := client.Write(own); err != nil {
		t.Fatal(err)
	}
	_ = client.SetReadDeadline(time.Now().Add(time.Minute))
	if n, err := client.Read(buffer); err != nil || n != 600 {
		t.Fatalf("a hello is answered by %d bytes, %v; %v", n, err, s.Status().Refused)
	}
	for name, datagram := range map[string][]byte{"nothing": {}, "noise": bytes.Repeat([]byte{7}, 600), "a hello to another bridge": hello(id.Public()),
		"a client's hello again": own, "a cut hello": own[:len(own)-40]} {
		before := refusals(s)
		if _, err := stranger.Write(datagram); err != nil {
			t.Fatal(err)
		}
		polltest.Await(t, name+" is refused", func() bool { return refusals(s) > before })
	}
	_ = client.SetReadDeadline(time.Now().Add(time.Millisecond))
	if n, err := client.Read(buffer); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a client that shows nothing got %d bytes more, %v", n, err)
	}
	_ = stranger.SetReadDeadline(time.Now().Add(time.Millisecond))
	if n, err := stranger.Read(buffer); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a stranger was answered by %d bytes, %v", n, err)
	}
	if got := s.Status().LinksEver; got != 1 {
		t.Errorf("%d links", got)
	}
}

func refusals(s *setup) (n uint64) {
	for _, one := range s.Status().Refused {
		n += one
	}
	return n
}

// While a client has not shown that it receives, the bridge sends no more than came.
func TestNoAmplification(t *testing.T) {
	ends := [2]*net.UDPConn{}
	for i := range ends {
		var err error
		if ends[i], err = net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}); err != nil {
			t.Fatal(err)
		}
		defer ends[i].Close()
	}
	reached := false
	c := &caller{p: &packets{socket: ends[0]}, from: netutil.AddrPort(ends[1].LocalAddr()), done: make(chan struct{}), reached: func() bool { return reached }}
	c.got.Store(3 * (100 + headers))
	arrive := func() (n int) {
		t.Helper()
		for range 10 {
			if _, err := c.Write(make([]byte, 100)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := ends[0].WriteToUDPAddrPort([]byte("last"), c.from); err != nil {
			t.Fatal(err)
		}
		_ = ends[1].SetReadDeadline(time.Now().Add(time.Minute))
		for buffer := make([]byte, 200); ; n++ {
			if got, err := ends[1].Read(buffer); err != nil {
				t.Fatal(err)
			} else if got == 4 {
				return n
			}
		}
	}
	if n := arrive(); n != 3 {
		t.Errorf("%d datagrams left for three", n)
	}
	if reached = true; arrive() != 10 {
		t.Error("datagrams to a client that receives are dropped")
	}
}

// Once a client has shown on one connection that it receives, its other connections from that address count too, and none from another.
func TestReachesAnAddress(t *testing.T) {
	e := &entry{reached: map[netip.Addr]bool{}}
	here, there := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	yes, no := func() bool { return true }, func() bool { return false }
	if e.reaches(here, no) || !e.reaches(here, yes) || !e.reaches(here, no) || e.reaches(there, no) {
		t.Errorf("it takes %v for shown", e.reached)
	}
	for range maxReached * 2 {
		there = there.Next()
		e.reaches(there, yes)
	}
	if len(e.reached) != maxReached {
		t.Errorf("it remembers %d addresses", len(e.reached))
	}
}

// Only silence tells that a path of datagrams is dead, so such a link cannot require several. It goes round a dead one.
func TestDeadPathOverUDP(t *testing.T) {
	t.Parallel()
	s, o := startOverUDP(t)
	hole, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer hole.Close()
	for _, name := range []string{"dead", "good"} {
		var p path.Path = path.NewSystem(0)
		if name == "dead" {
			p = &diverted{p, netutil.AddrPort(hole.LocalAddr())}
		}
		o.Paths = append(o.Paths, client.Path{Name: name, Path: p})
	}
	o.Schedule = schedule.Config{Name: "round-robin"}
	if _, err := client.Dial(t.Context(), o); err == nil || !strings.Contains(err.Error(), "over UDP only sending tells") {
		t.Errorf("with two required paths: %v", err)
	}
	o.MinPaths = 1
	c := opened(t, o) // the dead path comes first
	exchange(t, c, 10_000)
	c.Close()
	if got := s.Status().LinksEver; got != 1 {
		t.Errorf("%d links", got)
	}
}

// diverted is a path on which nothing arrives.
type diverted struct {
	path.Path
	hole netip.AddrPort
}

func (d *diverted) Open(ctx context.Context, _ netip.AddrPort) (path.Flow, error) {
	return path.Open(ctx, d.Path, d.hole)
}
