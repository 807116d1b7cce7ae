package censor

import (
	"bytes"
	"net"
	"slices"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// resets forges TCP resets to both ends for the last decoded segment, which is dropped: to its destination in its
// place, and back to its source. Each has exactly the expected sequence number; otherwise the end would send a
// challenge ACK (RFC 9293 section 3.10.7.4).
func (j *judge) resets() [][]byte {
	onward := &layers.TCP{SrcPort: j.tcp.SrcPort, DstPort: j.tcp.DstPort, Seq: j.tcp.Seq, Ack: j.tcp.Ack, RST: true, ACK: true}
	back := &layers.TCP{SrcPort: j.tcp.DstPort, DstPort: j.tcp.SrcPort, Seq: j.tcp.Ack,
		Ack: j.tcp.Seq + uint32(len(j.tcp.Payload)), RST: true, ACK: true}
	return j.forge(onward, nil, back)
}

// truncation forges the end of the stream in the midst of the last decoded segment, and tells its source that the other end
// has ended too.
func (j *judge) truncation() [][]byte {
	onward := &layers.TCP{SrcPort: j.tcp.SrcPort, DstPort: j.tcp.DstPort, Seq: j.tcp.Seq, Ack: j.tcp.Ack, Window: j.tcp.Window, FIN: true, ACK: true}
	back := &layers.TCP{SrcPort: j.tcp.DstPort, DstPort: j.tcp.SrcPort, Seq: j.tcp.Ack, Ack: j.tcp.Seq, Window: j.tcp.Window, FIN: true, ACK: true}
	return j.forge(onward, j.tcp.Payload[:len(j.tcp.Payload)/2], back)
}

// flipped is the last decoded segment with one bit of its payload changed, and the right checksum.
func (j *judge) flipped() [][]byte {
	payload := bytes.Clone(j.tcp.Payload)
	payload[len(payload)/2] ^= 1
	return j.forge(&j.tcp, payload, nil)
}

// forge makes a segment to the destination of the last decoded one, and one to its source unless back is nil.
func (j *judge) forge(onward *layers.TCP, payload []byte, back *layers.TCP) (forged [][]byte) {
	source, destination := j.ip4.SrcIP, j.ip4.DstIP
	if j.seen[0] == layers.LayerTypeIPv6 {
		source, destination = j.ip6.SrcIP, j.ip6.DstIP
	}
	forged = append(forged, forge(source, destination, onward, payload))
	if back != nil {
		forged = append(forged, forge(destination, source, back, nil))
	}
	return slices.DeleteFunc(forged, func(packet []byte) bool { return packet == nil })
}

func forge(source, destination net.IP, tcp *layers.TCP, payload []byte) []byte {
	const hops = 64
	var network interface {
		gopacket.NetworkLayer
		gopacket.SerializableLayer
	}
	if source.To4() != nil {
		network = &layers.IPv4{Version: 4, TTL: hops, Protocol: layers.IPProtocolTCP, SrcIP: source, DstIP: destination}
	} else {
		network = &layers.IPv6{Version: 6, HopLimit: hops, NextHeader: layers.IPProtocolTCP, SrcIP: source, DstIP: destination}
	}
	b := gopacket.NewSerializeBuffer()
	options := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if tcp.SetNetworkLayerForChecksum(network) != nil || gopacket.SerializeLayers(b, options, network, tcp, gopacket.Payload(payload)) != nil {
		return nil
	}
	return b.Bytes()
}
