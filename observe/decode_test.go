package observe

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
)

// change returns an IP packet with other bytes at a place.
func change(ip []byte, at int, with ...byte) []byte {
	ip = bytes.Clone(ip)
	copy(ip[at:], with)
	return ip
}

// extended puts extension headers, in order, into an IPv6 packet of UDP; the last one names UDP.
func extended(ip []byte, first byte, extensions ...byte) []byte {
	out := append(bytes.Clone(ip[:40]), extensions...)
	out[6] = first
	binary.BigEndian.PutUint16(out[4:], uint16(len(extensions)+len(ip)-40))
	return append(out, ip[40:]...)
}

func TestDecodeHeaders(t *testing.T) {
	four := appendUDP(nil, alice, vpn, hello)
	here, there := netip.MustParseAddrPort("[2001:db8::7]:40000"), netip.MustParseAddrPort("[2001:db8::9]:443")
	six := appendUDP(nil, here, there, hello)
	hops, authentication := []byte{60, 0, 1, 4, 0, 0, 0, 0, 17, 1, 1, 12, 23: 0}, []byte{17, 2, 15: 0}
	for _, c := range []struct {
		name          string
		ip            []byte
		captured      int // 0 is all
		size, payload int
		ports         bool
	}{
		{"IPv4", four, 0, 33, 5, true},
		{"its first fragment", change(four, 6, 0x20, 0), 0, 33, 5, true},
		{"a later fragment", change(four, 6, 0, 3), 0, 33, 13, false},
		{"offloading leaves no length", change(four, 2, 0, 0), 30, 33, 5, true},
		{"a length that cannot be", change(four, 2, 0, 19), 0, 33, 5, true},
		{"ports that were not captured", four, 22, 33, 5, false},
		{"another protocol", change(four, 9, 132), 0, 33, 13, false},
		{"IPv6", six, 0, 53, 5, true},
		{"without a length", change(six, 4, 0, 0), 0, 53, 5, true},
		{"with options", extended(six, 0, hops...), 0, 77, 5, true},
		{"authenticated", extended(six, 51, authentication...), 0, 69, 5, true},
		{"its first fragment", extended(six, 44, 17, 0, 0, 1, 0, 0, 0, 7), 0, 61, 5, true},
		{"a later fragment", extended(six, 44, 17, 0, 0, 9, 0, 0, 0, 7), 0, 61, 13, false},
	} {
		data := c.ip
		if c.captured > 0 {
			data = data[:c.captured]
		}
		p, ok := newDecoder().decode(captured{data: data, link: LinkRaw, info: gopacket.CaptureInfo{Length: len(c.ip)}})
		if !ok || p.size != c.size || p.payloadSize != c.payload || (p.source.Port() == 40000) != c.ports {
			t.Errorf("%s: %v, %d bytes with %d of payload from %v", c.name, ok, p.size, p.payloadSize, p.source)
		}
	}
	for name, data := range map[string][]byte{"nothing": {}, "IPv5": {0x50, 19: 0}, "half a header": four[:19], "a short header": change(four, 0, 0x44)} {
		if p, ok := newDecoder().decode(captured{data: data, link: LinkRaw, info: gopacket.CaptureInfo{Length: len(data)}}); ok {
			t.Errorf("%s: %+v", name, p)
		}
	}
}
