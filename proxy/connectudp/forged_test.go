package connectudp

import (
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"

	"heddle/internal/netutil"
	"heddle/path/masque"
)

// deaf is a socket whose owner never hears an answer, as that of somebody who forged its address.
type deaf struct {
	net.PacketConn
	answered func() // called at the first answer
}

func (d *deaf) ReadFrom(b []byte) (int, net.Addr, error) {
	for {
		if _, _, err := d.PacketConn.ReadFrom(b); err != nil {
			return 0, nil, err
		}
		d.answered()
	}
}

// forge begins handshakes that never end, one from each of some addresses, the next once the proxy answered. It may drop some.
func forge(t *testing.T, s *setup, from []netip.Addr) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var dials sync.WaitGroup
	t.Cleanup(func() { cancel(); dials.Wait() })
	for _, a := range from {
		socket, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, 0)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { socket.Close() })
		answered := make(chan struct{})
		hear := sync.OnceFunc(func() { close(answered) })
		dials.Go(func() {
			defer hear()
			_, err := quic.Dial(ctx, &deaf{socket, hear}, net.UDPAddrFromAddrPort(s.Addr()),
				&tls.Config{InsecureSkipVerify: true, NextProtos: []string{http3.NextProtoH3}}, &quic.Config{})
			if err == nil {
				t.Error("a handshake ended without answers")
			}
		})
		<-answered
	}
}

// listening is a socket that notes the largest packet of the proxy before the handshake is over.
type listening struct {
	net.PacketConn
	largest atomic.Int64
}

func (l *listening) ReadFrom(b []byte) (int, net.Addr, error) {
	n, from, err := l.PacketConn.ReadFrom(b)
	if err == nil && b[0]&0x80 != 0 { // a long header
		l.largest.Store(max(l.largest.Load(), int64(n)))
	}
	return n, from, err
}

// The proxy's first packets are no larger than the client's, also after a Retry, so that they pass the client's device.
func TestFirstPacketsFitTheClient(t *testing.T) {
	for _, retry := range []bool{false, true} {
		for size, most := range map[uint16]int{1200: masque.PacketRoomy, masque.PacketNarrow: masque.PacketNarrow, 1332: 1332, masque.PacketRoomy: masque.PacketRoomy} {
			s := start(t, nil)
			if retry {
				s.doubted.mu.Lock()
				s.doubted.pending[netip.MustParseAddr("127.0.0.1")] = time.Now().Add(-narrowAfter)
				s.doubted.mu.Unlock()
			}
			socket, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { socket.Close() })
			l := &listening{PacketConn: socket}
			transport := &quic.Transport{Conn: l}
			c, err := transport.Dial(t.Context(), net.UDPAddrFromAddrPort(s.Addr()), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{http3.NextProtoH3}},
				&quic.Config{EnableDatagrams: true, InitialPacketSize: size, HandshakeIdleTimeout: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			c.CloseWithError(0, "")
			transport.Close()
			if got := int(l.largest.Load()); got != most {
				t.Errorf("a client that begins with %d bytes got %d, want %d (Retry: %v)", size, got, most, retry)
			}
		}
	}
}

// Handshakes with the user's address, begun by somebody who hears no answer, do not keep the user out. Neither do those with
// many addresses.
func TestForgedHandshakesLockNobodyOut(t *testing.T) {
	user := netip.MustParseAddr("127.0.0.1")
	victim, crowd := make([]netip.Addr, maxPerSource+6), make([]netip.Addr, 3*maxUnproven)
	next := netip.MustParseAddr("127.1.0.1")
	for i := range victim {
		victim[i] = user
	}
	for i := range crowd {
		crowd[i] = next
		next = next.Next()
	}
	for name, c := range map[string]struct {
		from []netip.Addr
		most int // unfinished handshakes that the proxy keeps
	}{"of the user": {victim, maxUnprovenEach}, "of many": {crowd, maxUnproven}} {
		t.Run(name, func(t *testing.T) {
			s := start(t, nil)
			forge(t, s, c.from)
			if got := s.Status().Connections; got > c.most {
				t.Errorf("%d handshakes are kept, want at most %d", got, c.most)
			}
			at, _ := echo(t, "127.0.0.1:0")
			b := connect(t, s)
			stream := b.flow(at)
			if err := stream.SendDatagram([]byte{0, 'x'}); err != nil {
				t.Fatal(err)
			}
			if got := b.receive(stream); got != "x" {
				t.Errorf("%q", got)
			}
			if got := s.Status().RefusedLimit; got != 0 {
				t.Errorf("%d connections were refused", got)
			}
		})
	}
}

// A source that proved its address has its places, and no more.
func TestProvenConnectionsAreBounded(t *testing.T) {
	s := start(t, func(o *Options) { // so many connections may take longer than the patience with one that does not authenticate
		o.after = func(time.Duration, func()) *time.Timer { return time.NewTimer(time.Hour) }
	})
	for range maxPerSource {
		connect(t, s)
	}
	c, err := quic.DialAddr(t.Context(), s.Addr().String(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{http3.NextProtoH3}},
		&quic.Config{HandshakeIdleTimeout: time.Minute})
	if err == nil {
		<-c.Context().Done() // by the proxy, or else by the connection's idle time-out
	}
	if got := s.Status().RefusedLimit; got != 1 {
		t.Errorf("%d connections were refused, want 1", got)
	}
}

// A handshake that anybody may have begun makes the next client prove its address, and changes no packets. One whose client proved
// its address means small packets.
func TestForgedHandshakesMakeNoSmallPackets(t *testing.T) {
	s := start(t, nil)
	now := time.Now()
	s.stuck.now = func() time.Time { return now }
	s.doubted.now = s.stuck.now
	user := &net.UDPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1}
	for _, proved := range []bool{false, true} {
		if _, err := s.admit(t.Context(), &quic.ClientInfo{RemoteAddr: user, AddrVerified: proved}); err != nil {
			t.Fatal(err)
		}
		now = now.Add(narrowAfter)
		if !s.crowded(user) {
			t.Error("a client at an address whose handshake did not finish need not prove it")
		}
		if got := s.packetSize(netutil.AddrPort(user)); (got == masque.PacketNarrow) != proved {
			t.Errorf("packets of %d bytes after a handshake; the client proved its address: %v", got, proved)
		}
	}
}
