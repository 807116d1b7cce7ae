package backendtest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"heddle/internal/netutil"
	"heddle/internal/nstest"
	"heddle/internal/polltest"
)

// Port is the server's UDP port.
const Port = 4433

// Patience is how long to wait for packets that must come. It exceeds the delays of a busy machine.
const Patience = 30 * time.Second

// moment is how long to wait for an answer that must not come.
const moment = 500 * time.Millisecond

// Echo is a UDP server that sends each datagram back.
type Echo struct {
	At       netip.AddrPort
	Received atomic.Int64
}

// NewEcho starts an echo server on an address of the server, until the test ends.
func (w *World) NewEcho(t *testing.T, at netip.Addr) *Echo {
	t.Helper()
	e := &Echo{At: netip.AddrPortFrom(at, Port)}
	var conn *net.UDPConn
	w.Server.Do(t, func() (err error) {
		conn, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(e.At))
		return err
	})
	roomy(t, conn)
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

// Await waits until the server has received n datagrams.
func (e *Echo) Await(t *testing.T, n int) {
	t.Helper()
	polltest.Until(t, func() error {
		if got := e.Received.Load(); got < int64(n) {
			return fmt.Errorf("the server received %d datagrams of %d", got, n)
		}
		return nil
	})
}

// roomy gives a socket a buffer for all packets of a test, so that its reader may lag.
func roomy(t *testing.T, c *net.UDPConn) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err == nil {
		controlErr := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20) })
		err = errors.Join(err, controlErr)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// NewSocket opens a socket in the client. It binds to local and connects to to, where valid.
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
	roomy(t, conn)
	t.Cleanup(func() { conn.Close() })
	return conn
}

var talks atomic.Int64

// Talk sends n datagrams, each after the answer to the previous one and a pause. It returns the number of answers.
func Talk(c *net.UDPConn, server netip.AddrPort, n int, pause time.Duration) (back int) {
	return talk(c, server, n, pause, Patience)
}

// InVain sends n datagrams that must not leave. It returns the number of answers.
func InVain(c *net.UDPConn, server netip.AddrPort, n int) (back int) {
	return talk(c, server, n, 0, moment)
}

func talk(c *net.UDPConn, server netip.AddrPort, n int, pause, patience time.Duration) (back int) {
	for range n {
		if exchange(c, server, fmt.Sprint("talk ", talks.Add(1)), patience) {
			back++
		} else {
			patience = moment // one is missing already
		}
		time.Sleep(pause)
	}
	return back
}

// exchange reports whether the server echoes text. It ignores late answers to earlier datagrams.
func exchange(c *net.UDPConn, server netip.AddrPort, text string, patience time.Duration) bool {
	var err error
	if c.RemoteAddr() != nil {
		_, err = c.Write([]byte(text))
	} else {
		_, err = c.WriteToUDPAddrPort([]byte(text), server)
	}
	_ = c.SetReadDeadline(time.Now().Add(patience))
	for buffer := make([]byte, 2048); err == nil; {
		var n int
		var from netip.AddrPort
		n, from, err = c.ReadFromUDPAddrPort(buffer)
		if err == nil && string(buffer[:n]) == text {
			return from.Addr().Unmap() == server.Addr() && from.Port() == server.Port()
		}
	}
	return false
}

// Packet is a datagram to the server as it arrived at the router.
type Packet struct {
	Way      int // 1 to [Ways]
	From, To netip.AddrPort
	Length   int    // UDP payload in bytes, summed over a run of segments
	Text     string // beginning of the payload
}

// ByWay counts the packets of each way. Index n is way n.
func ByWay(all []Packet) []int {
	by := make([]int, Ways+1)
	for _, p := range all {
		by[p.Way]++
	}
	return by
}

// Tap records the packets that arrive at the router from the client, in order of arrival.
type Tap struct {
	tap     *nstest.Tap
	mu      sync.Mutex
	packets []Packet
	changed chan struct{}
}

// NewTap records IP packets until the test ends.
func (w *World) NewTap(t *testing.T) *Tap {
	t.Helper()
	tap := &Tap{changed: make(chan struct{}, 1)}
	var devices []string
	for n := 1; n <= Ways; n++ {
		devices = append(devices, fmt.Sprintf("r%d", n))
	}
	tap.tap = w.Router.Tap(t, func(passed nstest.Passed) {
		if p, ok := decode(passed.Bytes); ok && !passed.Outgoing {
			p.Way = slices.Index(devices, passed.Device) + 1
			tap.note(p)
		}
	}, devices...)
	return tap
}

func (p *Tap) note(one Packet) {
	p.mu.Lock()
	p.packets = append(p.packets, one)
	p.mu.Unlock()
	netutil.Offer(p.changed, struct{}{})
}

// Packets returns what arrived before the call. It waits for a recorder that lags behind.
func (p *Tap) Packets() []Packet {
	p.tap.Drain()
	return p.recorded()
}

func (p *Tap) recorded() []Packet {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]Packet(nil), p.packets...)
}

// Await waits until wanted accepts the recorded packets. It returns false after a timeout.
func (p *Tap) Await(wanted func([]Packet) bool) bool {
	timeout := time.After(Patience)
	for !wanted(p.recorded()) {
		select {
		case <-p.changed:
		case <-timeout:
			return false
		}
	}
	return true
}

// Until calls more repeatedly until wanted accepts the recorded packets. It returns false after a timeout.
func (p *Tap) Until(wanted func([]Packet) bool, more func()) bool {
	for end := time.Now().Add(Patience); !wanted(p.Packets()); more() {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// Reset discards the recorded packets.
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
