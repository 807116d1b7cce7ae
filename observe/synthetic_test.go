package observe

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

var (
	epoch     = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	vpn       = netip.MustParseAddrPort("198.51.100.7:51820")
	webServer = netip.MustParseAddr("203.0.113.80")
	resolver  = netip.MustParseAddr("203.0.113.53")
)

// captureFile writes packets to DIR/NAME.pcapng, of a client with that address.
func captureFile(t testing.TB, dir, name string, client netip.Addr, packets func(write func(at time.Duration, ip []byte))) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(filepath.Join(dir, name+".pcapng"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	w, err := NewWriter(file, LinkRaw, name, ClientComment(client))
	if err != nil {
		t.Fatal(err)
	}
	packets(func(at time.Duration, ip []byte) {
		if err := w.Write(epoch.Add(at), ip, len(ip)); err != nil {
			t.Fatal(err)
		}
	})
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
}

// wireguard is a data message with room for so many bytes.
func wireguard(size int) []byte {
	return append([]byte{4, 0, 0, 0}, make([]byte, 28+(size+15)/16*16)...)
}

// splitSession writes the captures of a download over three networks that are switched every 100 ms.
func splitSession(t testing.TB, dir string, seed uint64, seconds float64) {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 0))
	names := []string{"cafe", "home", "lte"}
	weights := []float64{0.2, 0.5, 1}
	type sent struct {
		at  time.Duration
		out bool
		n   int
	}
	paths := make([][]sent, len(names))
	now, slot, current := time.Duration(0), -1, 0
	for now.Seconds() < seconds {
		if s := int(now / (100 * time.Millisecond)); s != slot {
			slot = s
			draw := random.Float64()
			for current = 0; draw > weights[current]; current++ {
			}
		}
		if now.Seconds() < seconds*0.3 || now.Seconds() > seconds*0.35 {
			for range 4 {
				now += time.Duration(200+random.IntN(600)) * time.Microsecond
				paths[current] = append(paths[current], sent{now, false, 1420})
			}
		} else {
			now += 30 * time.Millisecond
		}
		now += time.Duration(100+random.IntN(1000)) * time.Microsecond
		paths[current] = append(paths[current], sent{now, true, 52})
	}
	for i, name := range names {
		client := netip.AddrPortFrom(netip.MustParseAddr(fmt.Sprintf("10.0.%d.2", i+1)), 40000)
		captureFile(t, dir, name, client.Addr(), func(write func(time.Duration, []byte)) {
			for _, p := range paths[i] {
				if p.out {
					write(p.at, appendUDP(nil, client, vpn, wireguard(p.n)))
				} else {
					write(p.at, appendUDP(nil, vpn, client, wireguard(p.n)))
				}
			}
		})
	}
}

// plainSession writes the capture of one page fetched without any tunnel.
func plainSession(t testing.TB, dir string) {
	t.Helper()
	client := netip.MustParseAddr("10.0.1.2")
	captureFile(t, dir, "home", client, func(write func(time.Duration, []byte)) {
		asked := []byte("\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x05wages\x07example\x00\x00\x01\x00\x01")
		write(0, appendUDP(nil, netip.AddrPortFrom(client, 5353+1), netip.AddrPortFrom(resolver, 53), asked))
		answered := append([]byte{0x12, 0x34, 0x81, 0x80}, asked[4:]...)
		write(5*time.Millisecond, appendUDP(nil, netip.AddrPortFrom(resolver, 53), netip.AddrPortFrom(client, 5354), answered))
		s := tcpStream{client: netip.AddrPortFrom(client, 50000), server: netip.AddrPortFrom(webServer, 80)}
		write(10*time.Millisecond, s.segment(t, true, 99, true, nil))
		write(20*time.Millisecond, s.segment(t, false, 499, true, nil))
		request := []byte("GET /march.html HTTP/1.1\r\nHost: wages.example\r\n\r\n")
		write(31*time.Millisecond, s.segment(t, true, 110, false, request[10:])) // out of order
		write(32*time.Millisecond, s.segment(t, true, 100, false, request[:10]))
		for i := range 40 {
			body := make([]byte, 1400)
			copy(body, "HTTP/1.1 200 OK\r\n\r\n")
			write(40*time.Millisecond+time.Duration(i)*time.Millisecond, s.segment(t, false, 500+uint32(i)*1400, false, body))
		}
	})
}

type tcpStream struct{ client, server netip.AddrPort }

// segment is one packet, with options of MPTCP without their kind and length.
func (s tcpStream) segment(t testing.TB, out bool, sequence uint32, syn bool, payload []byte, multipath ...[]byte) []byte {
	t.Helper()
	from, to := s.server, s.client
	if out {
		from, to = to, from
	}
	ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolTCP, SrcIP: from.Addr().AsSlice(), DstIP: to.Addr().AsSlice()}
	tcp := &layers.TCP{SrcPort: layers.TCPPort(from.Port()), DstPort: layers.TCPPort(to.Port()), Seq: sequence,
		SYN: syn, ACK: !syn || !out, Window: 1000}
	for _, data := range multipath {
		tcp.Options = append(tcp.Options, layers.TCPOption{OptionType: layers.TCPOptionKindMultipathTCP, OptionLength: uint8(2 + len(data)), OptionData: data})
	}
	if err := tcp.SetNetworkLayerForChecksum(ip); err != nil {
		t.Fatal(err)
	}
	buffer := gopacket.NewSerializeBuffer()
	options := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := gopacket.SerializeLayers(buffer, options, ip, tcp, gopacket.Payload(payload)); err != nil {
		t.Fatal(err)
	}
	return append([]byte(nil), buffer.Bytes()...)
}
