package doctor

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/vishvananda/netlink"
)

// stray is an address whose packets leave by another interface than its own.
type stray struct {
	address netip.Addr
	by      string
	gateway string // of its own interface, or empty
}

// firstTable is the first routing table in the hints. Tables from 253 on are the system's.
const firstTable = 101

// stray asks the kernel for the route of a packet that has the address, but is not bound to the interface.
func (i Interface) stray(index int, family string, source, far netip.Addr) []stray {
	routes, err := netlink.RouteGetWithOptions(far.AsSlice(), &netlink.RouteGetOptions{SrcAddr: source.AsSlice()})
	if err != nil || len(routes) == 0 || routes[0].LinkIndex == index {
		return nil
	}
	s := stray{address: source, by: fmt.Sprintf("interface %d", routes[0].LinkIndex)}
	if link, err := netlink.LinkByIndex(routes[0].LinkIndex); err == nil {
		s.by = link.Attrs().Name
	}
	for _, r := range i.Defaults {
		if r.Family == family && s.gateway == "" {
			s.gateway = r.Via
		}
	}
	return []stray{s}
}

// sourcesCheck reports whether each address leaves by its own interface, which paths of kind src: need.
func sourcesCheck(ways []Interface) Result {
	var found, commands []string
	for _, i := range ways {
		for _, s := range i.strays {
			found = append(found, fmt.Sprintf("%v of %s leaves by %s", s.address, i.Name, s.by))
			table, ip, via := firstTable+len(commands)/2, "ip", ""
			if s.address.Is6() {
				ip = "ip -6"
			}
			if s.gateway != "" {
				via = " via " + s.gateway
			}
			commands = append(commands, fmt.Sprintf("%s route add default%s dev %s table %d", ip, via, i.Name, table),
				fmt.Sprintf("%s rule add from %v lookup %d", ip, s.address, table))
		}
	}
	switch {
	case len(ways) == 0:
		return unknown("no interface is a way out", "")
	case len(found) == 0:
		return yes("each leaves by its own interface")
	}
	return partly(list(found)+"; a path src: of it would too, and the kernel's answers to what comes late",
		"name the interface (if:), which needs no rule; for src:, and for the kernel, "+strings.Join(commands, "; "))
}
