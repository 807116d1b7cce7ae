package netutil

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// Place is where a rule leads: a network, or what is neither a network nor an address, such as a name.
type Place struct {
	Prefix netip.Prefix // of one address too; invalid if there is a name
	Name   string
	Port   uint16 // 0 is any
}

// ParsePlace reads CIDR, ADDRESS or NAME, or one of them with :PORT; an IPv6 one with a port stands in brackets.
func ParsePlace(text string) (Place, error) {
	place, port, hasPort := text, "", false
	if inside, ok := strings.CutPrefix(text, "["); ok {
		if place, port, hasPort = strings.Cut(inside, "]:"); !hasPort {
			return Place{}, fmt.Errorf("no port follows the [ of %.80q", text)
		}
	} else if strings.Count(text, ":") == 1 {
		place, port, hasPort = strings.Cut(text, ":")
	}
	var p Place
	if hasPort {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 {
			return Place{}, fmt.Errorf("%.80q is no port", port)
		}
		p.Port = uint16(n)
	}
	if a, err := netip.ParseAddr(place); err == nil && a.Zone() == "" {
		p.Prefix = netip.PrefixFrom(a, a.BitLen())
	} else if prefix, err := netip.ParsePrefix(place); err == nil {
		p.Prefix = prefix.Masked()
	} else {
		p.Name = place
	}
	return p, nil
}
