package planetest

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Port is the server's.
const Port = 4433

// Echo is a UDP server that sends each datagram back.
type Echo struct {
	At       netip.AddrPort
	Received atomic.Int64
}

// NewEcho starts one on an address of the server, until the test ends.
func (w *World) NewEcho(t *testing.T, at netip.Addr) *Echo {
	t.Helper()
	e := &Echo{At: netip.AddrPortFrom(at, Port)}
	var conn *net.UDPConn
	w.Server.Do(t, func() (err error) {
		conn, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(e.At))
		return err
	})
	_ = conn.SetReadBuffer(4 << 20)
	done := make(chan struct{})
	go func() {
		defer close(done)
		buffer := make([]byte, 1<<16)
		for {
			n, from, err := conn.ReadFromUDPAddrPort(buffer)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				e.Received.Add(1)
				_, _ = conn.WriteToUDPAddrPort(buffer[:n], from)
			}
		}
	}()
	t.Cleanup(func() { conn.Close(); <-done })
	return e
}

// Client opens a socket in the client: bound where local is valid, connected where to is.
func (w *World) NewSocket(t *testing.T, local netip.AddrPort, to netip.AddrPort) *net.UDPConn {
	t.Helper()
	var conn *net.UDPConn
	w.Client.Do(t, func() (err error) {
		var from *net.UDPAddr
		if local.IsValid() {
			from = net.UDPAddrFromAddrPort(local)
		}
		if to.IsValid() {
			conn, err = net.DialUDP("udp", from, net.UDPAddrFromAddrPort(to))
		} else {
			conn, err = net.ListenUDP("udp", from)
		}
		return err
	})
	_ = conn.SetReadBuffer(4 << 20)
	t.Cleanup(func() { conn.Close() })
	return conn
}

// SetSegment makes a socket hand each write to the kernel as a run of datagrams of so many bytes (UDP_SEGMENT).
func SetSegment(t *testing.T, c *net.UDPConn, size int) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err == nil {
		controlErr := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_SEGMENT, size) })
		err = errors.Join(err, controlErr)
	}
	if errors.Is(err, unix.ENOPROTOOPT) {
		t.Skipf("the kernel has no UDP_SEGMENT: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Packet is a datagram to the server, as it arrived at the router.
type Packet struct {
	Way      int // 1 to [Ways]
	From, To netip.AddrPort
	// Length of the UDP payload; where the router got a run of segments, of all of them.
	Length int
	// Text is the beginning of the payload.
	Text string
}

// Tap records what arrives at the router from the client, in the order of arrival.
type Tap struct {
	mu      sync.Mutex
	packets []Packet
	changed chan struct{}
	// asked is how often someone asked for all there is, drained the last of these that found the socket empty.
	asked, drained atomic.Int64
}

// NewTap starts to record IP packets, until the test ends.
func (w *World) NewTap(t *testing.T) *Tap {
	t.Helper()
	tap := &Tap{changed: make(chan struct{}, 1)}
	ways := map[int]int{}
	fd := -1
	w.Router.Do(t, func() (err error) {
		for n := 1; n <= Ways; n++ {
			link, err := netlink.LinkByName("r" + string(rune('0'+n)))
			if err != nil {
				return err
			}
			ways[link.Attrs().Index] = n
		}
		all := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, unix.ETH_P_ALL))
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, int(all))
		if err == nil {
			err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20)
		}
		return errors.Join(err, unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 5000}))
	})
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		buffer := make([]byte, 1<<17)
		for ctx.Err() == nil {
			asked := tap.asked.Load()
			n, from, err := unix.Recvfrom(fd, buffer, 0)
			if errors.Is(err, unix.EAGAIN) {
				tap.drained.Store(asked)
			}
			ll, ok := from.(*unix.SockaddrLinklayer)
			if err != nil || !ok || ll.Pkttype == unix.PACKET_OUTGOING || ways[ll.Ifindex] == 0 {
				continue
			}
			if p, ok := decode(buffer[:n]); ok {
				p.Way = ways[ll.Ifindex]
				tap.note(p)
			}
		}
		unix.Close(fd)
	}()
	t.Cleanup(func() { stop(); <-done })
	return tap
}

func (p *Tap) note(one Packet) {
	p.mu.Lock()
	p.packets = append(p.packets, one)
	p.mu.Unlock()
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// Packets gives what arrived before the call: where the recorder is behind, it waits for it, for five seconds.
func (p *Tap) Packets() []Packet {
	asked := p.asked.Add(1)
	for end := time.Now().Add(5 * time.Second); p.drained.Load() < asked && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	return p.recorded()
}

func (p *Tap) recorded() []Packet {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]Packet(nil), p.packets...)
}

// Await waits until what was recorded is as wanted; it reports false after five seconds.
func (p *Tap) Await(wanted func([]Packet) bool) bool {
	timeout := time.After(5 * time.Second)
	for !wanted(p.recorded()) {
		select {
		case <-p.changed:
		case <-timeout:
			return false
		}
	}
	return true
}

// Reset forgets what was recorded.
func (p *Tap) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.packets = nil
}

// decode reads UDP over IPv4 (RFC 791) or IPv6 (RFC 8200).
func decode(b []byte) (Packet, bool) {
	if len(b) < 28 {
		return Packet{}, false
	}
	var from, to netip.Addr
	var udp []byte
	switch b[0] >> 4 {
	case 4:
		from, to, udp = netip.AddrFrom4([4]byte(b[12:])), netip.AddrFrom4([4]byte(b[16:])), b[min(len(b), int(b[0]&15)*4):]
		if b[9] != unix.IPPROTO_UDP {
			return Packet{}, false
		}
	case 6:
		if len(b) < 48 || b[6] != unix.IPPROTO_UDP {
			return Packet{}, false
		}
		from, to, udp = netip.AddrFrom16([16]byte(b[8:])), netip.AddrFrom16([16]byte(b[24:])), b[40:]
	}
	if len(udp) < 8 {
		return Packet{}, false
	}
	return Packet{From: netip.AddrPortFrom(from, binary.BigEndian.Uint16(udp)), To: netip.AddrPortFrom(to, binary.BigEndian.Uint16(udp[2:])),
		Length: len(udp) - 8, Text: string(udp[8:min(len(udp), 40)])}, true
}
