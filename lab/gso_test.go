package lab

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// superPacket serialises one large packet as the kernel hands it over before segmentation.
func superPacket(t testing.TB, v6, udp, ethernet bool, payload []byte) []byte {
	t.Helper()
	var list []gopacket.SerializableLayer
	etherType, protocol := layers.EthernetTypeIPv4, layers.IPProtocolTCP
	if v6 {
		etherType = layers.EthernetTypeIPv6
	}
	if udp {
		protocol = layers.IPProtocolUDP
	}
	if ethernet {
		list = append(list, &layers.Ethernet{SrcMAC: make([]byte, 6), DstMAC: make([]byte, 6), EthernetType: etherType})
	}
	var network gopacket.NetworkLayer
	if v6 {
		ip := &layers.IPv6{Version: 6, NextHeader: protocol, HopLimit: 64, SrcIP: make([]byte, 16), DstIP: make([]byte, 16)}
		network, list = ip, append(list, ip)
	} else {
		ip := &layers.IPv4{Version: 4, IHL: 5, Id: 0xffff, TTL: 64, Protocol: protocol, SrcIP: []byte{192, 0, 2, 1}, DstIP: []byte{192, 0, 2, 2}}
		network, list = ip, append(list, ip)
	}
	if udp {
		l := &layers.UDP{SrcPort: 1, DstPort: 2}
		l.SetNetworkLayerForChecksum(network)
		list = append(list, l)
	} else {
		l := &layers.TCP{SrcPort: 1, DstPort: 2, Seq: 0xffffff00, ACK: true, PSH: true, FIN: true, CWR: true,
			Options: []layers.TCPOption{{OptionType: layers.TCPOptionKindNop}, {OptionType: layers.TCPOptionKindNop}, {OptionType: layers.TCPOptionKindNop}, {OptionType: layers.TCPOptionKindNop}}}
		l.SetNetworkLayerForChecksum(network)
		list = append(list, l)
	}
	buffer := gopacket.NewSerializeBuffer()
	err := gopacket.SerializeLayers(buffer, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, append(list, gopacket.Payload(payload))...)
	if err != nil {
		t.Fatal(err)
	}
	return buffer.Bytes()
}

func TestSegmentsAreWhatTheWireCarries(t *testing.T) {
	payload := make([]byte, 3500)
	for i := range payload {
		payload[i] = byte(i)
	}
	for _, c := range []struct {
		name               string
		v6, udp, ethernet  bool
		gsoType            uint8
		wantPackets, bytes int
	}{
		{"TCP over IPv4 on Ethernet", false, false, true, gsoTCP4, 4, 3500 + 4*(14+20+24)},
		{"TCP over IPv6 on Ethernet", true, false, true, gsoTCP6, 4, 3500 + 4*(14+40+24)},
		{"UDP over IPv4", false, true, false, gsoUDP, 4, 3500 + 4*(20+8)},
		{"UDP over IPv6", true, true, false, gsoUDP, 4, 3500 + 4*(40+8)},
	} {
		layer2 := 0
		if c.ethernet {
			layer2 = 14
		}
		frame := superPacket(t, c.v6, c.udp, c.ethernet, payload)
		var joined []byte
		total, packets := 0, 0
		for s := range segments(vnetHeader{c.gsoType, 1000}, layer2, frame) {
			total += len(s)
			joined = append(joined, checkSegment(t, c.name, s[layer2:], c.v6, packets, len(frame))...)
			packets++
		}
		if packets != c.wantPackets || total != c.bytes || !bytes.Equal(joined, payload) {
			t.Errorf("%s: %d packets of %d bytes, want %d of %d; payload whole: %v", c.name, packets, total, c.wantPackets, c.bytes, bytes.Equal(joined, payload))
		}
	}
}

// checkSegment checks segment i by a dissector that is not ours, and gives its payload.
func checkSegment(t *testing.T, name string, ip []byte, v6 bool, i, superLen int) []byte {
	t.Helper()
	first := layers.LayerTypeIPv4
	if v6 {
		first = layers.LayerTypeIPv6
	}
	packet := gopacket.NewPacket(ip, first, gopacket.Default)
	if e := packet.ErrorLayer(); e != nil {
		t.Fatalf("%s: segment %d: %v", name, i, e.Error())
	}
	if l, ok := packet.NetworkLayer().(*layers.IPv4); ok && (int(l.Length) != len(ip) || l.Id != 0xffff+uint16(i) || onesSum(ip[:20]) != 0xffff) {
		t.Errorf("%s: segment %d: length %d of %d, id %x, checksum good: %v", name, i, l.Length, len(ip), l.Id, onesSum(ip[:20]) == 0xffff)
	}
	if l, ok := packet.NetworkLayer().(*layers.IPv6); ok && int(l.Length) != len(ip)-40 {
		t.Errorf("%s: segment %d: length %d of %d", name, i, l.Length, len(ip)-40)
	}
	last := i == 3
	if l, ok := packet.TransportLayer().(*layers.TCP); ok {
		if l.Seq != 0xffffff00+uint32(i*1000) || l.FIN != last || l.PSH != last || l.CWR != (i == 0) || !l.ACK {
			t.Errorf("%s: segment %d: seq %x FIN %v PSH %v CWR %v", name, i, l.Seq, l.FIN, l.PSH, l.CWR)
		}
	}
	if l, ok := packet.TransportLayer().(*layers.UDP); ok && int(l.Length) != 8+len(l.Payload) {
		t.Errorf("%s: segment %d: UDP length %d with %d bytes", name, i, l.Length, len(l.Payload))
	}
	return packet.TransportLayer().LayerPayload()
}

func TestOtherFramesAreGivenWhole(t *testing.T) {
	whole := superPacket(t, false, true, false, make([]byte, 1200))
	for name, c := range map[string]struct {
		h     vnetHeader
		frame []byte
	}{
		"no super-packet":  {vnetHeader{0, 1000}, whole},
		"no size":          {vnetHeader{gsoUDP, 0}, whole},
		"another protocol": {vnetHeader{gsoTCP4, 1000}, whole},
		"cut short":        {vnetHeader{gsoUDP, 10}, whole[:27]},
		"empty":            {vnetHeader{gsoUDP, 10}, nil},
	} {
		n := 0
		for s := range segments(c.h, 0, c.frame) {
			if n++; !bytes.Equal(s, c.frame) {
				t.Errorf("%s: changed", name)
			}
		}
		if n != 1 {
			t.Errorf("%s: %d packets", name, n)
		}
	}
}

// FuzzSegments: whatever a stranger sends, nothing is lost and nothing breaks.
func FuzzSegments(f *testing.F) {
	for _, v6 := range []bool{false, true} {
		for _, udp := range []bool{false, true} {
			f.Add(append(binary.NativeEndian.AppendUint16([]byte{0, gsoUDP, 0, 0}, 500), append(make([]byte, 4), superPacket(f, v6, udp, true, make([]byte, 1600))...)...), 14)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, layer2 int) {
		if len(data) < vnetHeaderLen || (layer2 != 0 && layer2 != 14) {
			t.Skip("not what the socket gives")
		}
		frame := data[vnetHeaderLen:]
		total := 0
		for s := range segments(parseVnetHeader(data), layer2, frame) {
			total += len(s)
		}
		if total < len(frame) {
			t.Errorf("%d bytes of %d", total, len(frame))
		}
	})
}
