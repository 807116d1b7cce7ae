package netutil

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// Place is the destination of a rule: a network, or a name.
type Place struct {
	Prefix netip.Prefix // also for a single address; invalid for a name
	Name   string
	Port   uint16 // 0 means any
}

// ParsePlace parses CIDR, ADDRESS or NAME, each with an optional :PORT. IPv6 with a port needs brackets.
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
