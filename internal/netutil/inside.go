package netutil

import "net/netip"

var (
	nat64      = netip.MustParsePrefix("64:ff9b::/96")
	nat64Local = netip.MustParsePrefix("64:ff9b:1::/48")
	sixToFour  = netip.MustParsePrefix("2002::/16")
)

// Inside returns the IPv4 addresses embedded in an IPv6 address: NAT64 (RFC 6052; RFC 8215 for local prefixes), 6to4 (RFC
// 3056), ISATAP (RFC 5214, section 6.1) and IPv4-mapped. A rule for IPv4 addresses must hold for all of them.
func Inside(a netip.Addr) []netip.Addr {
	if !a.Is6() {
		return nil
	}
	b := a.As16()
	last := netip.AddrFrom4([4]byte(b[12:]))
	switch {
	case a.Is4In6(), nat64.Contains(a):
		return []netip.Addr{last}
	case sixToFour.Contains(a):
		return []netip.Addr{netip.AddrFrom4([4]byte(b[2:]))}
	case nat64Local.Contains(a):
		return insideLocal(b)
	case b[8]&^2 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe: // mask: the bit of a globally unique address
		return []netip.Addr{last}
	}
	return nil
}

// insideLocal reads a local NAT64 address for each prefix length: 48, 56, 64 and 96 (RFC 6052, section 2.2). Byte 8 is
// always reserved. A result in 0.0.0.0/8 is padding of another length.
func insideLocal(b [16]byte) (all []netip.Addr) {
	for _, v4 := range [][4]byte{{b[6], b[7], b[9], b[10]}, {b[7], b[9], b[10], b[11]}, {b[9], b[10], b[11], b[12]}, [4]byte(b[12:])} {
		if v4[0] != 0 {
			all = append(all, netip.AddrFrom4(v4))
		}
	}
	return all
}
