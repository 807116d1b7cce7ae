package socks5

import (
	"errors"
	"net/netip"

	"heddle/internal/socks5"
)

// Header lengths of datagrams in bytes (RFC 1928, section 7).
const (
	headerIPv4 = 3 + 1 + 4 + 2
	headerIPv6 = 3 + 1 + 16 + 2
)

var errHeader = errors.New("no header of a SOCKS datagram")

// headerTo returns the header of datagrams to one server (RFC 1928, section 7).
func headerTo(to netip.AddrPort) []byte { return socks5.AppendDatagramHeader(nil, to) }

// parseHeader returns the sender in the header of a datagram from the proxy, and the header's length. It accepts a name only
// if that is an address as text; others cannot be matched to an address.
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
