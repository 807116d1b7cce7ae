package censor

import (
	"net"

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
	source, destination := j.ip4.SrcIP, j.ip4.DstIP
	if j.seen[0] == layers.LayerTypeIPv6 {
		source, destination = j.ip6.SrcIP, j.ip6.DstIP
	}
	var forged [][]byte
	for _, packet := range [][]byte{forge(source, destination, onward), forge(destination, source, back)} {
		if packet != nil {
			forged = append(forged, packet)
		}
	}
	return forged
}

func forge(source, destination net.IP, tcp *layers.TCP) []byte {
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
	if tcp.SetNetworkLayerForChecksum(network) != nil || gopacket.SerializeLayers(b, options, network, tcp) != nil {
		return nil
	}
	return b.Bytes()
}
