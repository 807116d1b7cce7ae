package client

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"heddle/path/masque"
)

// Destination is where a grant leads to, as it is written: an address or a network with or without a port, or a name
// with a port.
type Destination struct {
	Prefix netip.Prefix // invalid where there is a name
	Name   string       // in small letters
	Port   uint16       // 0 is any
}

// ParseDestination reads CIDR, ADDRESS, CIDR:PORT, ADDRESS:PORT or NAME:PORT; an IPv6 one with a port stands in brackets.
func ParseDestination(text string) (Destination, error) {
	bad := func() (Destination, error) {
		return Destination{}, fmt.Errorf("%.80q is no destination: write 192.0.2.0/24, 192.0.2.1:443, [2001:db8::/32]:443 or www.example.org:443", text)
	}
	place, port, hasPort := text, "", false
	if inside, ok := strings.CutPrefix(text, "["); ok {
		if place, port, hasPort = strings.Cut(inside, "]:"); !hasPort {
			return bad()
		}
	} else if strings.Count(text, ":") == 1 {
		place, port, hasPort = strings.Cut(text, ":")
	}
	var d Destination
	if hasPort {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 || port[0] == '+' {
			return bad()
		}
		d.Port = uint16(n)
	}
	if a, err := netip.ParseAddr(place); err == nil {
		if a.Zone() != "" || a.Is4In6() {
			return bad()
		}
		d.Prefix = netip.PrefixFrom(a, a.BitLen())
		return d, nil
	}
	if p, err := netip.ParsePrefix(place); err == nil {
		if p.Addr().Is4In6() {
			return bad()
		}
		d.Prefix = p.Masked()
		return d, nil
	}
	if !hasPort || strings.Contains(place, "/") || masque.CheckHost(place) != nil {
		return bad() // a name with any port would be a whole machine, whoever it comes to be
	}
	d.Name = strings.ToLower(strings.TrimSuffix(place, "."))
	return d, nil
}

// Holds reports whether the destination covers a host, as asked for by name or address, at one of its addresses.
func (d Destination) Holds(host string, to netip.AddrPort) bool {
	if d.Port != 0 && d.Port != to.Port() {
		return false
	}
	if d.Name != "" {
		return d.Name == strings.ToLower(strings.TrimSuffix(host, "."))
	}
	return d.Prefix.Contains(to.Addr().Unmap())
}

// Destinations reads those of a grant. They were checked when it was read.
func (g Grant) Destinations() []Destination {
	var list []Destination
	for _, text := range g.To {
		if d, err := ParseDestination(text); err == nil {
			list = append(list, d)
		}
	}
	return list
}

// Allows reports whether the grant is for a mode.
func (g Grant) Allows(mode string) bool { return slices.Contains(g.Modes, mode) }
