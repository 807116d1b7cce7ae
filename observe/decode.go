package observe

import (
	"encoding/binary"
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
	tcp      layers.TCP

	parsers map[gopacket.LayerType]*gopacket.DecodingLayerParser
	seen    []gopacket.LayerType
}

// decoded is one IP packet. Payload is the captured part of the transport's payload.
type decoded struct {
	source, destination netip.AddrPort
	protocol            uint8 // IP protocol number
	size                int   // length of the IP packet, in bytes
	payloadSize         int   // length of the payload of TCP, UDP or else IP on the wire, in bytes
	payload             []byte
	sequence            uint32
	acknowledged        uint32 // if ack
	syn, ack            bool
	options             []layers.TCPOption // valid until the next packet is decoded
}

func newDecoder() *decoder {
	return &decoder{parsers: map[gopacket.LayerType]*gopacket.DecodingLayerParser{}}
}

// firstLayers are the first layers of the link types that are known; zero means an IP packet without a link header.
var firstLayers = map[LinkType]gopacket.LayerType{
	layers.LinkTypeEthernet:  layers.LayerTypeEthernet,
	layers.LinkTypeLinuxSLL:  layers.LayerTypeLinuxSLL,
	layers.LinkTypeLinuxSLL2: layers.LayerTypeLinuxSLL2,
	layers.LinkTypeNull:      layers.LayerTypeLoopback,
	layers.LinkTypeLoop:      layers.LayerTypeLoopback,
	LinkRaw:                  0,
	12:                       0, // 12 and 14 are DLT_RAW on some systems
	14:                       0,
	layers.LinkTypeIPv4:      0,
	layers.LinkTypeIPv6:      0,
}

// network returns the bytes of a frame from its IP header on, or false if it is not IP.
func (d *decoder) network(link LinkType, data []byte) ([]byte, bool) {
	start := firstLayers[link]
	if start == 0 {
		return data, true
	}
	parser := d.parsers[start]
	if parser == nil {
		parser = gopacket.NewDecodingLayerParser(start, &d.ethernet, &d.vlan, &d.sll, &d.sll2, &d.loopback)
		d.parsers[start] = parser
	}
	d.seen = d.seen[:0]
	next, _ := parser.DecodeLayers(data, &d.seen).(gopacket.UnsupportedLayerType)
	if t := gopacket.LayerType(next); t != layers.LayerTypeIPv4 && t != layers.LayerTypeIPv6 {
		return nil, false
	}
	switch d.seen[len(d.seen)-1] {
	case layers.LayerTypeEthernet:
		return d.ethernet.Payload, true
	case layers.LayerTypeDot1Q:
		return d.vlan.Payload, true
	case layers.LayerTypeLinuxSLL:
		return d.sll.Payload, true
	case layers.LayerTypeLinuxSLL2:
		return d.sll2.Payload, true
	}
	return d.loopback.Payload, true
}

// decode decodes one packet. It returns false if it is not IP.
func (d *decoder) decode(c captured) (p decoded, ok bool) {
	ip, ok := d.network(c.link, c.data)
	if !ok || len(ip) == 0 {
		return p, false
	}
	wire := c.info.Length - (len(c.data) - len(ip)) // the packet's length before truncation, with Ethernet's padding
	var header int
	var first bool
	switch ip[0] >> 4 {
	case 4:
		header, first = p.ipv4(ip, wire)
	case 6:
		header, first = p.ipv6(ip, wire)
	}
	if header == 0 {
		return p, false
	}
	p.payloadSize = max(p.size-header, 0)
	if first {
		end := min(len(ip), p.size)
		d.transport(&p, ip[min(header, end):end])
	}
	return p, true
}

// ipv4 reads an IPv4 header (RFC 791). It returns the header's length, or 0 for what is none, and whether the packet
// begins its datagram, so that a transport header follows.
func (p *decoded) ipv4(ip []byte, wire int) (header int, first bool) {
	header = int(ip[0]&15) * 4
	if header < 20 || len(ip) < 20 {
		return 0, false
	}
	p.addresses(ip[12:16], ip[16:20])
	p.length(int(binary.BigEndian.Uint16(ip[2:])), 20, wire)
	p.protocol = ip[9]
	return header, binary.BigEndian.Uint16(ip[6:])&0x1fff == 0
}

// ipv6 reads an IPv6 header and its extensions (RFC 8200), as ipv4 does.
func (p *decoded) ipv6(ip []byte, wire int) (header int, first bool) {
	const fragment, authentication = 44, 51
	header = 40
	if len(ip) < header {
		return 0, false
	}
	p.addresses(ip[8:24], ip[24:40])
	p.length(header+int(binary.BigEndian.Uint16(ip[4:])), header+1, wire)
	p.protocol = ip[6]
	for {
		extension := ip[min(header, len(ip)):]
		switch p.protocol {
		case 0, 43, 60, 135, 139, 140, fragment, authentication: // hop-by-hop, routing, destination, mobility, HIP and shim6
			if len(extension) < 2 {
				return header, false
			}
		default:
			return header, true
		}
		switch length := int(extension[1]); p.protocol {
		case authentication:
			header += (length + 2) * 4
		case fragment:
			header += 8
			if len(extension) >= 4 && binary.BigEndian.Uint16(extension[2:])>>3 != 0 {
				p.protocol = extension[0]
				return header, false
			}
		default:
			header += (length + 1) * 8
		}
		p.protocol = extension[0]
	}
}

func (p *decoded) addresses(from, to []byte) {
	source, _ := netip.AddrFromSlice(from)
	destination, _ := netip.AddrFromSlice(to)
	p.source, p.destination = netip.AddrPortFrom(source, 0), netip.AddrPortFrom(destination, 0)
}

// length stores the packet's size. The header's length counts rather than that on the wire, since Ethernet pads short
// packets. It is below least in large packets that offloading made.
func (p *decoded) length(said, least, wire int) {
	p.size = wire
	if said >= least {
		p.size = min(wire, said)
	}
}

// transport reads as much of a TCP or UDP header as was captured.
func (d *decoder) transport(p *decoded, b []byte) {
	if p.protocol != protocolTCP && p.protocol != protocolUDP {
		return
	}
	if len(b) >= 4 {
		p.source = netip.AddrPortFrom(p.source.Addr(), binary.BigEndian.Uint16(b))
		p.destination = netip.AddrPortFrom(p.destination.Addr(), binary.BigEndian.Uint16(b[2:]))
	}
	header := udpHeader
	if p.protocol == protocolTCP {
		header = 20
		if len(b) > 13 {
			header = max(header, int(b[12]>>4)*4)
			p.sequence, p.acknowledged = binary.BigEndian.Uint32(b[4:]), binary.BigEndian.Uint32(b[8:])
			p.syn, p.ack = b[13]&2 != 0, b[13]&16 != 0
		}
		if d.tcp.DecodeFromBytes(b, gopacket.NilDecodeFeedback) == nil {
			p.options = d.tcp.Options
		}
	}
	p.payloadSize = max(p.payloadSize-header, 0)
	p.payload = b[min(header, len(b)):]
}
