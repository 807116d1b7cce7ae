package pseudonym

import (
	"fmt"
	"strings"

	"github.com/vishvananda/netlink"
)

// wayOut returns the default routes of this machine.
func wayOut() (ways []wayToClients, err error) {
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := netlink.RouteListFiltered(family, &netlink.Route{}, netlink.RT_FILTER_DST) // without one
		if err != nil {
			return nil, err
		}
		for _, r := range routes {
			link, err := netlink.LinkByIndex(r.LinkIndex)
			if err != nil {
				return nil, err
			}
			ways = append(ways, wayToClients{link.Attrs().Name, link.Attrs().MTU, setBy(r)})
		}
	}
	return ways, nil
}

// setBy writes what a route sets of TCP.
func setBy(r netlink.Route) string {
	var words []string
	for _, o := range []struct {
		name  string
		value int
	}{{"mtu", r.MTU}, {"advmss", r.AdvMSS}, {"window", r.Window}, {"initcwnd", r.InitCwnd}, {"initrwnd", r.InitRwnd}, {"rto_min", r.RtoMin}, {"quickack", r.QuickACK}} {
		if o.value != 0 {
			words = append(words, fmt.Sprintf("%s %d", o.name, o.value))
		}
	}
	if r.Congctl != "" {
		words = append(words, "congctl "+r.Congctl)
	}
	return strings.Join(words, " ")
}
