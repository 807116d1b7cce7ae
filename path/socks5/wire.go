package socks5

import (
	"errors"
	"net/netip"

	"heddle/internal/socks5"
)

// The lengths in bytes of the header of a datagram (RFC 1928, section 7).
const (
	headerIPv4 = 3 + 1 + 4 + 2
	headerIPv6 = 3 + 1 + 16 + 2
)

var errHeader = errors.New("no header of a SOCKS datagram")

// headerTo is what stands before each datagram to one server (RFC 1928, section 7).
func headerTo(to netip.AddrPort) []byte { return socks5.AppendDatagramHeader(nil, to) }

// parseHeader reads the header of a datagram from the proxy: who sent it, and how long the header is. A source given as
// a name is taken where it is an address written out; who else that is cannot be known.
func parseHeader(b []byte) (from netip.AddrPort, length int, err error) {
	if len(b) < 2 || b[0] != 0 || b[1] != 0 {
		return netip.AddrPort{}, 0, errHeader
	}
	source, payload, err := socks5.ParseDatagram(b)
	if err == nil && source.Name != "" {
		err = socks5.ErrAddressType
	}
	return netip.AddrPortFrom(source.Addr, source.Port), len(b) - len(payload), err
}
