package observe

import (
	"net"
	"net/netip"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// decoder decodes packets up to addresses, ports and payload. It allocates nothing for a packet.
type decoder struct {
	ethernet layers.Ethernet
	vlan     layers.Dot1Q
	sll      layers.LinuxSLL
	sll2     layers.LinuxSLL2
	loopback layers.Loopback
	ip4      layers.IPv4
	ip6      layers.IPv6
	options  layers.IPv6ExtensionSkipper
	tcp      layers.TCP
	udp      layers.UDP

	parsers map[gopacket.LayerType]*gopacket.DecodingLayerParser
	seen    []gopacket.LayerType
}

// decoded is one IP packet. Payload is the captured part of the transport's payload.
type decoded struct {
	source, destination netip.AddrPort
	protocol            uint8 // IP protocol number
	size                int   // length of the IP packet, in bytes
	payloadSize         int   // length of the transport's payload on the wire, in bytes
	payload             []byte
	sequence            uint32
	syn, ack            bool
	options             []layers.TCPOption // valid until the next packet is decoded
}

func newDecoder() *decoder {
	return &decoder{parsers: map[gopacket.LayerType]*gopacket.DecodingLayerParser{}}
}

// first returns the first layer of packets of a link type.
func first(link LinkType, data []byte) (gopacket.LayerType, bool) {
	switch link {
	case layers.LinkTypeEthernet:
		return layers.LayerTypeEthernet, true
	case layers.LinkTypeLinuxSLL:
		return layers.LayerTypeLinuxSLL, true
	case layers.LinkTypeLinuxSLL2:
		return layers.LayerTypeLinuxSLL2, true
	case layers.LinkTypeNull, layers.LinkTypeLoop:
		return layers.LayerTypeLoopback, true
	case LinkRaw, 12, 14, layers.LinkTypeIPv4, layers.LinkTypeIPv6: // 12 and 14 are DLT_RAW on some systems
		if len(data) == 0 {
			return 0, false
		}
		switch data[0] >> 4 {
		case 4:
			return layers.LayerTypeIPv4, true
		case 6:
			return layers.LayerTypeIPv6, true
		}
	}
	return 0, false
}

// decode decodes one packet. It returns false if it is not IP.
func (d *decoder) decode(c captured) (decoded, bool) {
	data, wire := c.data, c.info.Length // wire is the length before truncation
	start, ok := first(c.link, data)
	if !ok {
		return decoded{}, false
	}
	parser := d.parsers[start]
	if parser == nil {
		parser = gopacket.NewDecodingLayerParser(start, &d.ethernet, &d.vlan, &d.sll, &d.sll2, &d.loopback,
			&d.ip4, &d.ip6, &d.options, &d.tcp, &d.udp)
		parser.IgnoreUnsupported = true
		d.parsers[start] = parser
	}
	// An error means an unknown inner layer; the layers decoded before it are used.
	d.seen = d.seen[:0]
	_ = parser.DecodeLayers(data, &d.seen)
	var p decoded
	var network, headers int // bytes of data before the network's payload, and of headers after them
	for _, layer := range d.seen {
		switch layer {
		case layers.LayerTypeIPv4:
			p.network(d.ip4.SrcIP, d.ip4.DstIP, d.ip4.Protocol, d.ip4.BaseLayer, int(d.ip4.Length), len(data), wire)
			network = len(d.ip4.Contents)
		case layers.LayerTypeIPv6:
			length := int(d.ip6.Length)
			if length > 0 {
				length += len(d.ip6.Contents)
			}
			p.network(d.ip6.SrcIP, d.ip6.DstIP, d.ip6.NextHeader, d.ip6.BaseLayer, length, len(data), wire)
			network = len(d.ip6.Contents)
		case layers.LayerTypeTCP:
			p.transport(uint16(d.tcp.SrcPort), uint16(d.tcp.DstPort), d.tcp.Payload, network+headers+len(d.tcp.Contents))
			p.sequence, p.syn, p.ack, p.options = d.tcp.Seq, d.tcp.SYN, d.tcp.ACK, d.tcp.Options
		case layers.LayerTypeUDP:
			p.transport(uint16(d.udp.SrcPort), uint16(d.udp.DstPort), d.udp.Payload, network+headers+len(d.udp.Contents))
		default:
			if layers.LayerClassIPv6Extension.Contains(layer) {
				headers += len(d.options.Contents)
				p.protocol = uint8(d.options.NextHeader)
			}
		}
	}
	return p, p.source.IsValid() && p.size > 0
}

// network stores an IP header. length is the packet length in the header, or 0, which offloading leaves in large
// packets. It is preferred to wire, since Ethernet pads short packets.
func (p *decoded) network(from, to net.IP, protocol layers.IPProtocol, ip layers.BaseLayer, length, captured, wire int) {
	source, _ := netip.AddrFromSlice(from)
	destination, _ := netip.AddrFromSlice(to)
	p.source, p.destination = netip.AddrPortFrom(source, 0), netip.AddrPortFrom(destination, 0)
	p.protocol = uint8(protocol)
	link := captured - len(ip.Contents) - len(ip.Payload)
	p.size = wire - max(link, 0)
	if length >= len(ip.Contents) {
		p.size = min(p.size, length)
	}
}

func (p *decoded) transport(from, to uint16, payload []byte, headers int) {
	p.source = netip.AddrPortFrom(p.source.Addr(), from)
	p.destination = netip.AddrPortFrom(p.destination.Addr(), to)
	p.payload = payload
	p.payloadSize = max(p.size-headers, 0)
}
