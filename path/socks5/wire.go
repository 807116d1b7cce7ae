package socks5

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"strconv"
	"strings"

	"heddle/internal/socks5"
)

// Of the header of a datagram (RFC 1928, section 7).
const (
	addressIPv4 = 1
	addressName = 3
	addressIPv6 = 4

	headerIPv4 = 3 + 1 + 4 + 2  // of a datagram, in bytes
	headerIPv6 = 3 + 1 + 16 + 2 // the same
)

var (
	errHeader      = errors.New("no header of a SOCKS datagram")
	errFragment    = errors.New("a fragment of a SOCKS datagram")
	errAddressType = errors.New("unknown type of address")
)

// headerTo is what stands before each datagram to one server (RFC 1928, section 7).
func headerTo(to netip.AddrPort) []byte { return socks5.AppendDatagramHeader(nil, to) }

// parseHeader reads the header of a datagram from the proxy: who sent it, and how long the header is. A source given as
// a name is taken where it is an address written out; who else that is cannot be known.
func parseHeader(b []byte) (from netip.AddrPort, length int, err error) {
	if len(b) < 5 || b[0] != 0 || b[1] != 0 {
		return netip.AddrPort{}, 0, errHeader
	}
	if b[2] != 0 {
		return netip.AddrPort{}, 0, errFragment
	}
	start, end := 4, 0
	switch b[3] {
	case addressIPv4:
		end = start + 4
	case addressIPv6:
		end = start + 16
	case addressName:
		start, end = 5, 5+int(b[4])
	default:
		return netip.AddrPort{}, 0, errAddressType
	}
	if len(b) < end+2 {
		return netip.AddrPort{}, 0, errHeader
	}
	var a netip.Addr
	if b[3] == addressName {
		if a, err = netip.ParseAddr(string(b[start:end])); err != nil || a.Zone() != "" {
			return netip.AddrPort{}, 0, errAddressType
		}
	} else {
		a, _ = netip.AddrFromSlice(b[start:end])
	}
	return netip.AddrPortFrom(a.Unmap(), binary.BigEndian.Uint16(b[end:])), end + 2, nil
}

// splitAddress reads HOST:PORT strictly.
func splitAddress(text string) (host string, port uint16, ok bool) {
	at := strings.LastIndexByte(text, ':')
	if at <= 0 {
		return "", 0, false
	}
	host = text[:at]
	if strings.HasPrefix(host, "[") != strings.HasSuffix(host, "]") || strings.HasPrefix(host, "[") == !strings.Contains(host, ":") {
		return "", 0, false
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	n, err := strconv.ParseUint(text[at+1:], 10, 16)
	if err != nil || n == 0 || host == "" || len(host) > 253 || strings.ContainsAny(host, " \t/@") {
		return "", 0, false
	}
	return host, uint16(n), true
}
