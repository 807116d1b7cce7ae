package reconstruct

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"heddle/observe"
	"heddle/observe/decrypt"
)

const clientKey, serverKey = 0x1111111111111111, 0x2222222222222222

func hashOf(key uint64) [32]byte { return sha256.Sum256(binary.BigEndian.AppendUint64(nil, key)) }

// subflows captures an MPTCP connection of two subflows that take pieces of a size in turn, the first one the beginning
// too; one capture each.
func subflows(t *testing.T, up, down []byte, size int) (seen [2][]observe.Conversation) {
	t.Helper()
	for n := range seen {
		var file bytes.Buffer
		w := pcapgo.NewWriter(&file)
		if err := w.WriteFileHeader(65535, layers.LinkTypeRaw); err != nil {
			t.Fatal(err)
		}
		client, server := netip.MustParseAddrPort("10.0.0.2:50000"), netip.MustParseAddrPort("192.0.2.1:443")
		client = netip.AddrPortFrom(client.Addr(), client.Port()+uint16(n))
		write := func(from, to netip.AddrPort, tcp layers.TCP, payload []byte, option []byte) {
			ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolTCP, SrcIP: from.Addr().AsSlice(), DstIP: to.Addr().AsSlice()}
			tcp.SrcPort, tcp.DstPort = layers.TCPPort(from.Port()), layers.TCPPort(to.Port())
			if option != nil {
				tcp.Options = []layers.TCPOption{{OptionType: layers.TCPOptionKindMultipathTCP, OptionData: option}}
			}
			_ = tcp.SetNetworkLayerForChecksum(ip)
			b := gopacket.NewSerializeBuffer()
			err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, ip, &tcp, gopacket.Payload(payload))
			if err == nil {
				err = w.WritePacket(gopacket.CaptureInfo{CaptureLength: len(b.Bytes()), Length: len(b.Bytes())}, b.Bytes())
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		token, isn := hashOf(serverKey), uint32(1000*n)
		syn := []byte{0x01, 0x01} // MP_CAPABLE
		if n == 1 {
			syn = append(append([]byte{0x10, 1}, token[:4]...), 0, 0, 0, 1)
		}
		write(client, server, layers.TCP{SYN: true, Seq: isn}, nil, syn)
		write(server, client, layers.TCP{SYN: true, ACK: true, Seq: isn}, nil, nil)
		if n == 0 {
			keys := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64([]byte{0x01, 0x01}, clientKey), serverKey)
			write(client, server, layers.TCP{ACK: true, Seq: isn + 1}, nil, keys)
		}
		for _, half := range []struct {
			said     []byte
			key      uint64
			from, to netip.AddrPort
		}{{up, clientKey, client, server}, {down, serverKey, server, client}} {
			hash, sent := hashOf(half.key), 0
			first := binary.BigEndian.Uint64(hash[24:]) + 1
			for at := 0; at < len(half.said); at += size {
				piece := half.said[at:min(at+size, len(half.said))]
				if at/size%2 != n {
					continue
				}
				dss := binary.BigEndian.AppendUint64([]byte{0x20, 0x0c}, first+uint64(at))
				dss = binary.BigEndian.AppendUint32(dss, uint32(sent)+1)
				dss = binary.BigEndian.AppendUint16(dss, uint16(len(piece)))
				write(half.from, half.to, layers.TCP{ACK: true, Seq: isn + uint32(sent) + 1}, piece, dss)
				sent += len(piece)
			}
		}
		all, stopped, err := observe.Conversations(&file)
		if err != nil || stopped != "" || len(all) != 1 {
			t.Fatalf("%d conversations, %q, %v", len(all), stopped, err)
		}
		seen[n] = all
	}
	return seen
}

func TestSubflowsInTheClear(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	file := picture(rand.New(rand.NewPCG(seed, 0)), 40, 30)
	const size = 500
	seen := subflows(t, file, []byte("thanks"), size)
	for n := range seen {
		sessions, notes := Multipath(seen[n], seen[1-n], nil)
		if len(sessions) != 1 || len(notes) != 0 {
			t.Fatalf("%d sessions, %q", len(sessions), notes)
		}
		s := sessions[0]
		if s.Schedule != "mptcp" || s.Of != 2 || len(s.Members) != 1 || s.Up.Length != uint64(len(file)) {
			t.Errorf("%s, members %v of %d, %d bytes", s.Schedule, s.Members, s.Of, s.Up.Length)
		}
		stream, known := s.Up.Fill(0, len(file))
		for i := range file {
			if want := i/size%2 == n; known[i] != want || want && stream[i] != file[i] {
				t.Fatalf("subflow %d, byte %d: known %v", n, i, known[i])
			}
		}
	}
	whole, _ := Multipath(slices.Concat(seen[0], seen[1], seen[1]), nil, nil)
	if len(whole) != 1 || whole[0].Of != 2 || whole[0].Up.Seen() != uint64(len(file)) || whole[0].Down.Seen() != 6 {
		t.Errorf("both: %d sessions", len(whole))
	}
	if sessions, notes := Multipath(seen[1], nil, nil); len(sessions) != 0 || len(notes) != 1 || !strings.Contains(notes[0], "first subflow") {
		t.Errorf("the second alone: %d sessions, %q", len(sessions), notes)
	}
	if sessions, notes := Sessions(slices.Concat(seen[0], seen[1]), nil); len(sessions)+len(notes) != 0 {
		t.Errorf("%d are taken for sessions of Heddle's, %q", len(sessions), notes)
	}
}

// TLS lies in the connection: of each record a subflow shows the part that it carried, where the records can be told apart.
func TestSubflowsInTLS(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	file := picture(rand.New(rand.NewPCG(seed, 0)), 60, 50)
	var log bytes.Buffer
	client, server := wrap(t, &log, file, []byte("thanks"))
	keys, err := decrypt.ReadKeys(&log)
	if err != nil {
		t.Fatal(err)
	}
	const size = 900
	seen := subflows(t, client, server, size)
	var sum uint64
	for n := range seen {
		sessions, notes := Multipath(seen[n], seen[1-n], keys)
		if len(sessions) != 1 || len(notes) != 0 {
			t.Fatalf("%d sessions, %q", len(sessions), notes)
		}
		s := sessions[0]
		stream, known := s.Up.Fill(0, len(file))
		for i := range file {
			if known[i] && stream[i] != file[i] {
				t.Fatalf("subflow %d, byte %d is wrong", n, i)
			}
		}
		if s.Up.Length != uint64(len(file)) || s.Up.Seen() < uint64(len(file))*2/5 {
			t.Errorf("subflow %d: %d of %d bytes", n, s.Up.Seen(), s.Up.Length)
		}
		sum += s.Up.Seen()
		if sessions, notes := Multipath(seen[n], nil, keys); len(sessions) != 0 || len(notes) != 1 {
			t.Errorf("with a gap in the first handshake message: %d sessions, %q", len(sessions), notes)
		}
	}
	if sum != uint64(len(file)) {
		t.Errorf("both saw %d bytes of %d", sum, len(file))
	}
	if sessions, notes := Multipath(seen[0], seen[1], decrypt.Keys{}); len(sessions) != 0 || len(notes) != 1 {
		t.Errorf("without keys: %d sessions, %q", len(sessions), notes)
	}
}
