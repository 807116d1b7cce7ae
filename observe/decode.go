package observe

import (
	"net/netip"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// decoder takes captured packets apart, as far as addresses, ports and payload. It allocates nothing for a packet.
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

// decoded is one IP packet. Payload is what was captured of the transport's payload.
type decoded struct {
	source, destination netip.AddrPort
	protocol            uint8 // IP protocol number
	size                int   // length of the IP packet, in bytes
	payloadSize         int   // length of the transport's payload on the wire, in bytes
	payload             []byte
	sequence            uint32
	syn, ack            bool
	options             []layers.TCPOption // until the next packet is taken apart
}

func newDecoder() *decoder {
	return &decoder{parsers: map[gopacket.LayerType]*gopacket.DecodingLayerParser{}}
}

// first gives the layer that a packet of this link type begins with.
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
	case LinkRaw, 12, 14, layers.LinkTypeIPv4, layers.LinkTypeIPv6: // 12 and 14: DLT_RAW of some systems
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

// decode takes one packet apart; wire is its length before it was cut. It reports false for what is no IP packet.
func (d *decoder) decode(link LinkType, data []byte, wire int) (decoded, bool) {
	start, ok := first(link, data)
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
	// An error means that the packet goes on in a way that is not understood; what was understood before it counts.
	d.seen = d.seen[:0]
	_ = parser.DecodeLayers(data, &d.seen)
	var p decoded
	var network, headers int // bytes of data before the network's payload, and headers after that
	for _, layer := range d.seen {
		switch layer {
		case layers.LayerTypeIPv4:
			p.network4(&d.ip4, len(data), wire)
			network = len(d.ip4.Contents)
		case layers.LayerTypeIPv6:
			p.network6(&d.ip6, len(data), wire)
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

func (p *decoded) network4(ip *layers.IPv4, captured, wire int) {
	source, _ := netip.AddrFromSlice(ip.SrcIP.To4())
	destination, _ := netip.AddrFromSlice(ip.DstIP.To4())
	p.addresses(source, destination, uint8(ip.Protocol))
	// Ethernet pads short packets, so the header's length counts; 0 is what offloading leaves of a large one.
	link := captured - len(ip.Contents) - len(ip.Payload)
	p.size = wire - max(link, 0)
	if length := int(ip.Length); length >= 20 && length < p.size {
		p.size = length
	}
}

func (p *decoded) network6(ip *layers.IPv6, captured, wire int) {
	source, _ := netip.AddrFromSlice(ip.SrcIP.To16())
	destination, _ := netip.AddrFromSlice(ip.DstIP.To16())
	p.addresses(source, destination, uint8(ip.NextHeader))
	link := captured - len(ip.Contents) - len(ip.Payload)
	p.size = wire - max(link, 0)
	if length := 40 + int(ip.Length); ip.Length > 0 && length < p.size {
		p.size = length
	}
}

func (p *decoded) addresses(source, destination netip.Addr, protocol uint8) {
	p.source = netip.AddrPortFrom(source, 0)
	p.destination = netip.AddrPortFrom(destination, 0)
	p.protocol = protocol
}

func (p *decoded) transport(from, to uint16, payload []byte, headers int) {
	p.source = netip.AddrPortFrom(p.source.Addr(), from)
	p.destination = netip.AddrPortFrom(p.destination.Addr(), to)
	p.payload = payload
	p.payloadSize = max(p.size-headers, 0)
}
