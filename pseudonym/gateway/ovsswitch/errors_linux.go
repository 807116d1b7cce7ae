package ovsswitch

import (
	"encoding/binary"
	"net"
	"net/netip"
	"slices"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
)

// Types of ICMP (RFC 792, RFC 4443).
const (
	unreachable4 = 3
	tooLarge4    = 4 // a code of it
	tooBig6      = 2
)

// message is an ICMP message that quotes a packet of TCP.
type message struct {
	tooLarge bool           // or another error
	from, to netip.AddrPort // of the quoted packet

	ethernet *layers.Ethernet
	ip4      *layers.IPv4
	ip6      *layers.IPv6
	icmp4    *layers.ICMPv4
	icmp6    *layers.ICMPv6
	rest     []byte // before the quoted packet, of ICMPv6
	quoted   []byte
	header   int // bytes of the quoted packet's, if it is one of IPv4
}

// parseMessage returns the message in a frame, or false if it is something else.
func parseMessage(frame []byte) (m message, ok bool) {
	p := parse(frame)
	m.ethernet, ok = p.Layer(layers.LayerTypeEthernet).(*layers.Ethernet)
	if !ok {
		return m, false
	}
	switch ip := p.NetworkLayer().(type) {
	case *layers.IPv4:
		m.ip4 = ip
		if m.icmp4, ok = p.Layer(layers.LayerTypeICMPv4).(*layers.ICMPv4); !ok {
			return m, false
		}
		m.quoted = m.icmp4.Payload
		switch m.icmp4.TypeCode.Type() {
		case unreachable4:
			m.tooLarge = m.icmp4.TypeCode.Code() == tooLarge4
		case layers.ICMPv4TypeSourceQuench, layers.ICMPv4TypeRedirect, layers.ICMPv4TypeTimeExceeded, layers.ICMPv4TypeParameterProblem:
		default:
			return m, false
		}
		return m, m.parse4()
	case *layers.IPv6:
		m.ip6 = ip
		if m.icmp6, ok = p.Layer(layers.LayerTypeICMPv6).(*layers.ICMPv6); !ok || ip.NextHeader != layers.IPProtocolICMPv6 {
			return m, false
		}
		kind := m.icmp6.TypeCode.Type()
		m.tooLarge = kind == tooBig6
		return m, kind >= 1 && kind <= 4 && m.parse6() // errors
	}
	return m, false
}

// header4 is the size of a header of IPv4 without options.
const header4 = 20

func (m *message) parse4() bool {
	q := m.quoted
	if len(q) < header4 || q[0]>>4 != 4 || q[9] != protocolTCP || binary.BigEndian.Uint16(q[6:])&0x1fff != 0 {
		return false
	}
	m.header = int(q[0]&0xf) * 4
	if m.header < header4 || len(q) < m.header+4 {
		return false
	}
	m.from = netip.AddrPortFrom(netip.AddrFrom4([4]byte(q[12:16])), binary.BigEndian.Uint16(q[m.header:]))
	m.to = netip.AddrPortFrom(netip.AddrFrom4([4]byte(q[16:20])), binary.BigEndian.Uint16(q[m.header+2:]))
	return true
}

func (m *message) parse6() bool {
	if len(m.icmp6.Payload) < 48 {
		return false
	}
	m.rest, m.quoted = m.icmp6.Payload[:4], m.icmp6.Payload[4:]
	q := m.quoted
	if q[0]>>4 != 6 || q[6] != protocolTCP {
		return false
	}
	m.from = netip.AddrPortFrom(netip.AddrFrom16([16]byte(q[8:24])), binary.BigEndian.Uint16(q[40:]))
	m.to = netip.AddrPortFrom(netip.AddrFrom16([16]byte(q[24:40])), binary.BigEndian.Uint16(q[42:]))
	return true
}

// readdress replaces addresses: those of the message, and those of the packet that it quotes. Those that are not valid stay.
func (m *message) readdress(source, target, quotedSource, quotedTarget netip.Addr) {
	at := map[bool][2]int{true: {12, 16}, false: {8, 24}}[m.ip4 != nil]
	q := slices.Clone(m.quoted)
	for i, a := range []netip.Addr{quotedSource, quotedTarget} {
		if a.IsValid() {
			copy(q[at[i]:], a.AsSlice())
		}
	}
	m.quoted = q
	if m.ip4 != nil {
		binary.BigEndian.PutUint16(q[10:], 0)
		binary.BigEndian.PutUint16(q[10:], ^checksum.Checksum(q[:m.header], 0))
		set(&m.ip4.SrcIP, source)
		set(&m.ip4.DstIP, target)
	} else {
		set(&m.ip6.SrcIP, source)
		set(&m.ip6.DstIP, target)
	}
}

func set(ip *net.IP, a netip.Addr) {
	if a.IsValid() {
		*ip = a.AsSlice()
	}
}

// frame returns the message as it is to be sent to the next hop, with the TTL of this machine's own packets if ttl is not 0.
func (m *message) frame(next []byte, ttl uint8) ([]byte, error) {
	m.ethernet.DstMAC = next
	all := []gopacket.SerializableLayer{m.ethernet}
	if m.ip4 != nil {
		if ttl > 0 {
			m.ip4.TTL = ttl
		}
		all = append(all, m.ip4, m.icmp4)
	} else {
		if ttl > 0 {
			m.ip6.HopLimit = ttl
		}
		if err := m.icmp6.SetNetworkLayerForChecksum(m.ip6); err != nil {
			return nil, err
		}
		all = append(all, m.ip6, m.icmp6, gopacket.Payload(m.rest))
	}
	return serialize(append(all, gopacket.Payload(m.quoted))...)
}

func serialize(all ...gopacket.SerializableLayer) ([]byte, error) {
	b := gopacket.NewSerializeBuffer()
	err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, all...)
	return b.Bytes(), err
}
