package censor

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/quic-go/quic-go"
)

var (
	client  = netip.MustParseAddrPort("10.101.1.2:50000")
	server  = netip.MustParseAddrPort("192.0.2.1:443")
	client6 = netip.MustParseAddrPort("[2001:db8:101:1::2]:50000")
	server6 = netip.MustParseAddrPort("[2001:db8:2::1]:443")
)

// packet makes an IP packet of a UDP payload, or of a TCP segment.
func packet(t testing.TB, from, to netip.AddrPort, tcp *layers.TCP, payload []byte) []byte {
	t.Helper()
	var network interface {
		gopacket.NetworkLayer
		gopacket.SerializableLayer
	}
	protocol := layers.IPProtocolUDP
	if tcp != nil {
		protocol = layers.IPProtocolTCP
	}
	if from.Addr().Is4() {
		network = &layers.IPv4{Version: 4, TTL: 64, Protocol: protocol, SrcIP: from.Addr().AsSlice(), DstIP: to.Addr().AsSlice()}
	} else {
		network = &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: protocol, SrcIP: from.Addr().AsSlice(), DstIP: to.Addr().AsSlice()}
	}
	b := gopacket.NewSerializeBuffer()
	options := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	var err error
	if tcp != nil {
		tcp.SrcPort, tcp.DstPort = layers.TCPPort(from.Port()), layers.TCPPort(to.Port())
		tcp.SetNetworkLayerForChecksum(network)
		err = gopacket.SerializeLayers(b, options, network, tcp, gopacket.Payload(payload))
	} else {
		udp := &layers.UDP{SrcPort: layers.UDPPort(from.Port()), DstPort: layers.UDPPort(to.Port())}
		udp.SetNetworkLayerForChecksum(network)
		err = gopacket.SerializeLayers(b, options, network, udp, gopacket.Payload(payload))
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// quicHello is the first flight of quic-go's client: some datagrams over which it slices the name.
func quicHello(t testing.TB, name string, version quic.Version) (flight [][]byte) {
	t.Helper()
	deaf, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer deaf.Close()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = quic.DialAddr(ctx, deaf.LocalAddr().String(), &tls.Config{ServerName: name, NextProtos: []string{"h3"}},
			&quic.Config{Versions: []quic.Version{version}})
	}()
	defer func() { cancel(); <-ended }()
	deaf.SetReadDeadline(time.Now().Add(time.Minute))
	for range 2 {
		buffer := make([]byte, 1500)
		n, err := deaf.Read(buffer)
		if err != nil {
			t.Fatal(err)
		}
		flight = append(flight, buffer[:n])
	}
	return flight
}

// tlsHello is the first flight of a TLS client.
func tlsHello(t testing.TB, name string) []byte {
	t.Helper()
	near, far := net.Pipe()
	defer far.Close()
	go func() {
		_ = tls.Client(near, &tls.Config{ServerName: name}).Handshake()
		near.Close()
	}()
	head := make([]byte, 5)
	if _, err := io.ReadFull(far, head); err != nil {
		t.Fatal(err)
	}
	body := make([]byte, int(head[3])<<8|int(head[4]))
	if _, err := io.ReadFull(far, body); err != nil {
		t.Fatal(err)
	}
	return append(head, body...)
}

// clock is a time that passes when told to.
type clock struct{ at time.Time }

func (c *clock) now() time.Time { return c.at }

func testJudge(reset bool, names ...string) (*judge, *clock) {
	c := &clock{time.Unix(1_000_000, 0)}
	return newJudge(Options{Names: names, Residual: time.Minute, Reset: reset}, c.now), c
}

func TestNamesOnTheList(t *testing.T) {
	j, _ := testJudge(false, "Blocked.example", "other.example.")
	for name, want := range map[string]string{
		"blocked.example": "Blocked.example", "BLOCKED.EXAMPLE": "Blocked.example", "www.blocked.example": "Blocked.example",
		"blocked.example.": "Blocked.example", "other.example": "other.example.", "notblocked.example": "", "example": "", "": "",
	} {
		var got string
		if n := j.listed(name); n != nil {
			got = n.Name
		}
		if got != want {
			t.Errorf("%q falls under %q, want %q", name, got, want)
		}
	}
}

func TestQUICByName(t *testing.T) {
	short := append([]byte{0x40}, make([]byte, 40)...)
	for _, version := range []quic.Version{quic.Version1, quic.Version2} {
		for _, ends := range [][2]netip.AddrPort{{client, server}, {client6, server6}} {
			t.Run(fmt.Sprint(version, ends[0].Addr()), func(t *testing.T) {
				from, to := ends[0], ends[1]
				j, clock := testJudge(false, "blocked.example")
				pass := func(from, to netip.AddrPort, payload []byte) bool {
					p, forged := j.packet(packet(t, from, to, nil, payload))
					if forged != nil {
						t.Error("the censor sends something of its own")
					}
					return p
				}
				for _, datagram := range quicHello(t, "open.example", version) {
					if !pass(from, to, datagram) {
						t.Error("the hello of an unlisted name is dropped")
					}
				}
				if !pass(from, to, short) || !pass(to, from, short) {
					t.Error("a flow with an unlisted name is dropped")
				}
				other := netip.AddrPortFrom(from.Addr(), from.Port()+1)
				hello := quicHello(t, "blocked.example", version)
				for i := len(hello) - 1; i >= 0; i-- { // out of order, too
					if through := pass(other, to, hello[i]); i == 0 && through {
						t.Fatal("the hello of a listed name passes")
					}
				}
				if pass(other, to, short) || pass(to, other, short) {
					t.Error("a convicted flow passes")
				}
				if !pass(from, to, short) {
					t.Error("another flow is dropped")
				}
				want := []Name{{Name: "blocked.example", QUIC: 1, Dropped: j.status.Dropped}}
				if !reflect.DeepEqual(j.status.Names, want) || j.status.Dropped < 3 || j.status.Initials != 3 && j.status.Initials != 4 {
					t.Errorf("%+v", j.status)
				}
				clock.at = clock.at.Add(time.Minute)
				if !pass(other, to, short) {
					t.Error("the flow is still dropped when its time is served")
				}
			})
		}
	}
}

func TestTLSByName(t *testing.T) {
	for _, ends := range [][2]netip.AddrPort{{client, server}, {client6, server6}} {
		for _, reset := range []bool{false, true} {
			from, to := ends[0], ends[1]
			j, _ := testJudge(reset, "blocked.example")
			hello := tlsHello(t, "blocked.example")
			for _, p := range [][]byte{
				packet(t, from, to, &layers.TCP{SYN: true, Seq: 99}, nil),
				packet(t, to, from, &layers.TCP{SYN: true, ACK: true, Seq: 499, Ack: 100}, nil),
				packet(t, from, to, &layers.TCP{ACK: true, Seq: 100, Ack: 500}, hello[:50]),
			} {
				if pass, _ := j.packet(p); !pass {
					t.Fatal("dropped before the name is told")
				}
			}
			pass, forged := j.packet(packet(t, from, to, &layers.TCP{ACK: true, Seq: 150, Ack: 500}, hello[50:]))
			if pass {
				t.Fatal("the hello of a listed name passes")
			}
			if again, more := j.packet(packet(t, to, from, &layers.TCP{ACK: true, Seq: 500, Ack: 150}, []byte("x"))); again || more != nil {
				t.Error("a convicted flow passes, or is reset again")
			}
			if n := j.status.Names[0]; n.TLS != 1 || n.QUIC != 0 || n.Dropped != 2 {
				t.Errorf("%+v", n)
			}
			if !reset {
				if forged != nil {
					t.Error("a reset that nobody asked for")
				}
				continue
			}
			want := [][]byte{
				packet(t, from, to, &layers.TCP{RST: true, ACK: true, Seq: 150, Ack: 500}, nil),
				packet(t, to, from, &layers.TCP{RST: true, ACK: true, Seq: 500, Ack: uint32(100 + len(hello))}, nil),
			}
			if !reflect.DeepEqual(forged, want) {
				t.Errorf("forged %x\nwant %x", forged, want)
			}
		}
	}
}

func TestOtherPacketsPass(t *testing.T) {
	j, _ := testJudge(true, "blocked.example")
	ping := packet(t, client, server, nil, nil)
	ping[9] = byte(layers.IPProtocolICMPv4)
	fragment := packet(t, client, server, nil, quicHello(t, "blocked.example", quic.Version1)[0])
	fragment[6], fragment[7] = 0x20, 1
	for name, data := range map[string][]byte{
		"nothing": {}, "noise": {0x45, 1, 2}, "version 7": {0x70, 0, 0}, "ping": ping, "fragment": fragment,
		"cut": packet(t, client, server, &layers.TCP{}, nil)[:30],
	} {
		if pass, forged := j.packet(data); !pass || forged != nil {
			t.Errorf("%s is dropped", name)
		}
	}
}

func TestFlowsAreBounded(t *testing.T) {
	j, clock := testJudge(false, "blocked.example")
	first := packet(t, client, server, nil, []byte("x"))
	j.packet(first)
	for i := range 2 * mostFlows {
		clock.at = clock.at.Add(time.Millisecond)
		from := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), 1000)
		j.packet(packet(t, from, server, nil, []byte("x")))
		j.packet(first) // stays, since it is never quiet
	}
	if len(j.flows) != mostFlows || j.quiet.Len() != mostFlows {
		t.Errorf("%d flows are kept", len(j.flows))
	}
	if j.flows[flowKey{layers.IPProtocolUDP, client, server}] == nil {
		t.Error("a flow that was never quiet is forgotten")
	}
}

func FuzzPacket(f *testing.F) {
	initial := append([]byte{0xc0, 0, 0, 0, 1, 8, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0x40, 60}, make([]byte, 60)...)
	f.Add(packet(f, client, server, nil, initial))
	f.Add(packet(f, client6, server6, &layers.TCP{ACK: true}, []byte{22, 3, 1, 0, 5, 1, 0, 0, 1, 3}))
	f.Fuzz(func(t *testing.T, data []byte) {
		j, _ := testJudge(true, "blocked.example")
		for _, name := range AttackNames() { // these need a connection, so one packet alone passes
			j.attacks = append(j.attacks, attackByName(name))
			j.status.Attacks = append(j.status.Attacks, Struck{Attack: name})
		}
		if pass, forged := j.packet(data); pass != (j.status.Dropped == 0) || pass && forged != nil {
			t.Errorf("passes: %v, %d forged, %+v", pass, len(forged), j.status)
		}
	})
}
