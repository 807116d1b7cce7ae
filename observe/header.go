package observe

import (
	"encoding/binary"
	"math"
	"net/netip"
)

const (
	protocolTCP = 6
	protocolUDP = 17
	udpHeader   = 8
	hopLimit    = 64
)

// appendUDP appends an IP packet (RFC 791, RFC 8200) with one UDP datagram (RFC 768). An unknown address becomes the
// unspecified one of the other's family. A payload too large for a datagram is truncated.
func appendUDP(b []byte, from, to netip.AddrPort, payload []byte) []byte {
	src, dst := from.Addr().Unmap(), to.Addr().Unmap()
	six := src.Is6() || dst.Is6()
	src, dst = ofFamily(src, six), ofFamily(dst, six)
	start := len(b)
	if src.Is4() {
		payload = payload[:min(len(payload), math.MaxUint16-20-udpHeader)]
		b = appendIPv4(b, src, dst, udpHeader+len(payload))
	} else {
		payload = payload[:min(len(payload), math.MaxUint16-udpHeader)]
		b = appendIPv6(b, src, dst, udpHeader+len(payload))
	}
	udp := len(b)
	b = binary.BigEndian.AppendUint16(b, from.Port())
	b = binary.BigEndian.AppendUint16(b, to.Port())
	b = binary.BigEndian.AppendUint16(b, uint16(udpHeader+len(payload)))
	b = append(b, 0, 0)
	b = append(b, payload...)
	addresses := b[start+12 : start+20]
	if src.Is6() {
		addresses = b[start+8 : start+40]
	}
	sum := checksum(checksum(uint64(protocolUDP+len(b)-udp), addresses), b[udp:])
	folded := ^fold(sum)
	if folded == 0 {
		folded = 0xffff // RFC 768: zero means "no checksum"
	}
	binary.BigEndian.PutUint16(b[udp+6:], folded)
	return b
}

func ofFamily(a netip.Addr, six bool) netip.Addr {
	switch {
	case six && a.IsValid():
		return netip.AddrFrom16(a.As16())
	case six:
		return netip.IPv6Unspecified()
	case a.IsValid():
		return a
	default:
		return netip.IPv4Unspecified()
	}
}

func appendIPv4(b []byte, src, dst netip.Addr, payload int) []byte {
	start := len(b)
	const dontFragment = 0x40
	b = append(b, 0x45, 0)
	b = binary.BigEndian.AppendUint16(b, uint16(20+payload))
	b = append(b, 0, 0, dontFragment, 0, hopLimit, protocolUDP, 0, 0)
	s, d := src.As4(), dst.As4()
	b = append(append(b, s[:]...), d[:]...)
	binary.BigEndian.PutUint16(b[start+10:], ^fold(checksum(0, b[start:])))
	return b
}

func appendIPv6(b []byte, src, dst netip.Addr, payload int) []byte {
	b = append(b, 0x60, 0, 0, 0)
	b = binary.BigEndian.AppendUint16(b, uint16(payload))
	b = append(b, protocolUDP, hopLimit)
	s, d := src.As16(), dst.As16()
	return append(append(b, s[:]...), d[:]...)
}

// checksum adds data to the unfolded sum of RFC 1071. Data of odd length is padded with a zero byte.
func checksum(sum uint64, data []byte) uint64 {
	for len(data) >= 4 {
		sum += uint64(binary.BigEndian.Uint32(data))
		data = data[4:]
	}
	if len(data) >= 2 {
		sum += uint64(binary.BigEndian.Uint16(data))
		data = data[2:]
	}
	if len(data) == 1 {
		sum += uint64(data[0]) << 8
	}
	return sum
}

func fold(sum uint64) uint16 {
	for sum > math.MaxUint16 {
		sum = sum>>16 + sum&math.MaxUint16
	}
	return uint16(sum)
}
