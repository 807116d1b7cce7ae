package client

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"heddle/internal/netutil"
	"heddle/path/masque"
)

// Destination is a grant's destination: an address or network with or without a port, or a lower-case name with a port.
type Destination netutil.Place

// ParseDestination reads CIDR, ADDRESS, CIDR:PORT, ADDRESS:PORT or NAME:PORT. IPv6 with a port needs brackets.
func ParseDestination(text string) (Destination, error) {
	d, err := netutil.ParsePlace(text)
	mapped := d.Prefix.Addr().Is4In6()
	// A name with any port would permit a whole machine, whoever the name comes to point to.
	if err != nil || mapped || !d.Prefix.IsValid() && (d.Port == 0 || strings.Contains(d.Name, "/") || masque.CheckHost(d.Name) != nil) {
		return Destination{}, fmt.Errorf("%.80q is no destination: write 192.0.2.0/24, 192.0.2.1:443, [2001:db8::/32]:443 or www.example.org:443", text)
	}
	d.Name = strings.ToLower(strings.TrimSuffix(d.Name, "."))
	return Destination(d), nil
}

// Holds reports whether the destination covers a host, requested by name or address, at one of its addresses.
func (d Destination) Holds(host string, to netip.AddrPort) bool {
	if d.Port != 0 && d.Port != to.Port() {
		return false
	}
	if d.Name != "" {
		return d.Name == strings.ToLower(strings.TrimSuffix(host, "."))
	}
	return d.Prefix.Contains(to.Addr().Unmap())
}

// Destinations parses the grant's destinations, which ParseGrant has checked.
func (g Grant) Destinations() []Destination {
	var list []Destination
	for _, text := range g.To {
		if d, err := ParseDestination(text); err == nil {
			list = append(list, d)
		}
	}
	return list
}

// Allows reports whether the grant permits a mode.
func (g Grant) Allows(mode string) bool { return slices.Contains(g.Modes, mode) }
