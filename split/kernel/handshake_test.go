package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"heddle/internal/bpf"
	"heddle/schedule"
	"heddle/split/backend"
)

const (
	quicV1, quicV2 = 1, 0x6b3343cf
	redirect       = 7 // TC_ACT_REDIRECT
)

// quicPacket begins as a QUIC packet does, and is as long as an Initial.
func quicPacket(first byte, version uint32) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{first}, version), make([]byte, 1195)...)
}

// secondFlight is an Initial with connection ids and a token, and a Handshake packet behind it in the same datagram.
func secondFlight(initial, handshake byte, version uint32) []byte {
	p := binary.BigEndian.AppendUint32([]byte{initial}, version)
	p = append(p, 2, 'a', 'b', 1, 'c', 0x40, 3, 't', 't', 't', 0x44, 0x00)
	p = append(p, make([]byte, 1024)...)
	return append(p, quicPacket(handshake, version)[:100]...)
}

// bench is a program that gets packets without a network, in units of one packet over three members in turn.
type bench struct {
	*ebpf.Program
	t      *testing.T
	maps   *maps
	server netip.AddrPort
}

func newBench(t *testing.T, server string) *bench {
	t.Helper()
	m, err := newMaps(3)
	if errors.Is(err, unix.EPERM) || errors.Is(err, ebpf.ErrNotSupported) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.close)
	b := &bench{t: t, maps: m, server: netip.MustParseAddrPort(server)}
	for i := range 3 {
		m.setHop(i, backend.Hop{Index: 10 + i, MTU: 1500, Source: b.source()})
	}
	for unit := range uint64(1000) {
		m.plans(unit, int(unit%3))
	}
	m.permit(bpf.Monotonic() + uint64(time.Hour))
	s := session{server: b.server, every: schedule.Every{Packets: 1}, mark: drawMark(), maps: m}
	if b.Program, err = s.outbound(bpf.EthernetHeader, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

func (b *bench) source() netip.Addr {
	if b.server.Addr().Is6() {
		return netip.MustParseAddr("2001:db8::99")
	}
	return netip.MustParseAddr("192.0.2.99")
}

// ways sends datagrams from a port, and returns the members that they leave by, such as "012".
func (b *bench) ways(port uint16, datagrams ...[]byte) (out string) {
	b.t.Helper()
	for _, d := range datagrams {
		length, source, target := uint16(8+len(d)), b.source().AsSlice(), b.server.Addr().AsSlice()
		var p []byte
		if b.server.Addr().Is6() {
			p = append(make([]byte, 12), 0x86, 0xdd, 0x60, 0, 0, 0, byte(length>>8), byte(length), unix.IPPROTO_UDP, 64)
		} else {
			total := 20 + length
			p = append(make([]byte, 12), 0x08, 0, 0x45, 0, byte(total>>8), byte(total), 0, 0, 0, 0, 64, unix.IPPROTO_UDP, 0, 0)
		}
		p = append(append(p, source...), target...)
		for _, n := range []uint16{port, b.server.Port(), length, 0} {
			p = binary.BigEndian.AppendUint16(p, n)
		}
		var context [48]uint32 // struct __sk_buff
		verdict, err := b.Run(&ebpf.RunOptions{Data: append(p, d...), ContextOut: &context})
		if errors.Is(err, ebpf.ErrNotSupported) {
			b.t.Skip(err)
		} else if err != nil || verdict != redirect {
			b.t.Fatalf("verdict %d, %v, drops %v", verdict, err, b.maps.drops())
		}
		out += string(rune('0' + context[2]&^markMask))
	}
	return out
}

// pass makes the handshake of a port as much older.
func (b *bench) pass(port uint16, by time.Duration) {
	b.t.Helper()
	key := uint32(binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, port)))
	var h struct{ Began, Flight, Last, Member uint64 }
	all := b.maps.all[splitMapHeddleHandshakes]
	if err := all.Lookup(key, &h); err != nil {
		b.t.Fatal(err)
	}
	for _, at := range []*uint64{&h.Began, &h.Flight, &h.Last} {
		if *at > 0 {
			*at -= uint64(by)
		}
	}
	if err := all.Put(key, h); err != nil {
		b.t.Fatal(err)
	}
}

// A handshake keeps its path until the server had time to answer the client's last long header. The test moves the times of a
// handshake. A machine that is late between two packets moves them too, so such a run is repeated.
func TestHandshakeKeepsItsPath(t *testing.T) {
	for name, c := range map[string]struct {
		server          string
		initial, flight []byte
	}{
		"IPv4":                    {"192.0.2.1:443", quicPacket(0xc0, quicV1), quicPacket(0xe0, quicV1)},
		"IPv6, version 2":         {"[2001:db8::1]:443", quicPacket(0xd0, quicV2), quicPacket(0xf0, quicV2)},
		"coalesced":               {"[2001:db8::1]:443", quicPacket(0xc0, quicV1), secondFlight(0xc0, 0xe0, quicV1)},
		"coalesced, of version 2": {"192.0.2.1:443", quicPacket(0xd0, quicV2), secondFlight(0xd0, 0xf0, quicV2)},
	} {
		t.Run(name, func(t *testing.T) {
			for try := 1; ; try++ {
				b := newBench(t, c.server)
				began := time.Now()
				err := b.handshake(c.initial, c.flight)
				if err == nil {
					return
				}
				if took := time.Since(began); took < late || try == 10 {
					t.Fatalf("in %v: %v", took, err)
				}
			}
		})
	}
}

// A run of handshake that takes less than late comes to the same as one that takes no time.
const rtt, late = 800 * time.Millisecond, 100 * time.Millisecond

// handshake sends the packets of one, and returns which left by another member than they should.
func (b *bench) handshake(initial, flight []byte) error {
	b.t.Helper()
	const port, other = 5000, 5001
	short := quicPacket(0x40, quicV1)
	var wrong []error
	wants := func(what, got, want string) {
		if got != want {
			wrong = append(wrong, fmt.Errorf("%s: packets left by %s, want %s", what, got, want))
		}
	}
	wants("first flight", b.ways(port, initial, initial), "00")
	wants("another program", b.ways(other, short, short), "20")
	b.pass(port, rtt)
	wants("second flight", b.ways(port, flight, short, short), "000")
	b.pass(port, rtt/2)
	wants("repeated", b.ways(port, flight, short), "00")
	b.pass(port, 3*rtt/2)
	wants("confirmed", b.ways(port, short, short, short), "012")
	wants("repeated later", b.ways(port, flight, short), "00")
	b.pass(port, 3*time.Second)
	wants("too long ago", b.ways(port, flight, short), "20")
	wants("another connection", b.ways(port, initial, initial), "11")
	b.maps.setHop(1, backend.Hop{})
	wants("its path is down", b.ways(port, initial), "0")
	return errors.Join(wrong...)
}
