package doctor

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Interface is one network interface and its default routes.
type Interface struct {
	Name      string   `json:"name"`
	Up        bool     `json:"up"`
	MTU       int      `json:"mtu"`
	Addresses []string `json:"addresses"`
	Defaults  []Route  `json:"default_routes"` // in any routing table
	// IPv4 and IPv6 say whether packets of a socket bound to the interface leave by it.
	IPv4 Result `json:"ipv4"`
	IPv6 Result `json:"ipv6"`

	strays []stray
}

// Route is a default route.
type Route struct {
	Family string `json:"family"` // "IPv4" or "IPv6"
	Via    string `json:"via,omitempty"`
	Table  int    `json:"table"` // 254 is main
	Metric int    `json:"metric"`
}

// Usable reports whether the interface can carry a path in at least one family.
func (i Interface) Usable() bool { return i.IPv4.Verdict == Yes || i.IPv6.Verdict == Yes }

// waysOut returns the usable ones.
func waysOut(all []Interface) []Interface {
	return slices.DeleteFunc(slices.Clone(all), func(i Interface) bool { return !i.Usable() })
}

// Far addresses to ask the kernel for a route to. They are for documentation (RFC 5737, RFC 3849); nothing is sent there.
var (
	farIPv4 = netip.MustParseAddr("198.51.100.1")
	farIPv6 = netip.MustParseAddr("2001:db8::1")
)

// interfaces returns all but loopback, the usable ones first.
func interfaces() ([]Interface, error) {
	links, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list the interfaces: %w", err)
	}
	defaults, err := defaultRoutes()
	if err != nil {
		return nil, fmt.Errorf("list the routes: %w", err)
	}
	usable, rest := []Interface{}, []Interface{}
	for _, link := range links {
		if link.Attrs().Flags&net.FlagLoopback != 0 {
			continue
		}
		if i := examine(link, defaults[link.Attrs().Index]); i.Usable() {
			usable = append(usable, i)
		} else {
			rest = append(rest, i)
		}
	}
	return append(usable, rest...), nil
}

func examine(link netlink.Link, defaults []Route) Interface {
	a := link.Attrs()
	i := Interface{Name: a.Name, Up: a.Flags&net.FlagUp != 0, MTU: a.MTU, Addresses: []string{}, Defaults: append([]Route{}, defaults...)}
	sources := map[bool]netip.Addr{} // the key says whether it is IPv4
	addresses, _ := netlink.AddrList(link, netlink.FAMILY_ALL)
	for _, address := range addresses {
		i.Addresses = append(i.Addresses, address.IPNet.String())
		ip, ok := netip.AddrFromSlice(address.IP)
		if ip = ip.Unmap(); ok && ip.IsGlobalUnicast() && !sources[ip.Is4()].IsValid() {
			sources[ip.Is4()] = ip
		}
	}
	for _, f := range []struct {
		name        string
		result      *Result
		source, far netip.Addr
	}{{"IPv4", &i.IPv4, sources[true], farIPv4}, {"IPv6", &i.IPv6, sources[false], farIPv6}} {
		*f.result = i.leaves(a.Index, f.name, f.source, f.far)
		f.result.Check = "source-routing-" + strings.ToLower(f.name)
		if f.result.Verdict != No {
			i.strays = append(i.strays, i.stray(a.Index, f.name, f.source, f.far)...)
		}
	}
	return i
}

// leaves asks the kernel for the route of a packet that is bound to the interface and has its address.
func (i Interface) leaves(index int, family string, source, far netip.Addr) Result {
	switch {
	case !i.Up:
		return no("the interface is down", "ip link set "+i.Name+" up")
	case !source.IsValid():
		return no("no "+family+" address", "wait for DHCP or router advertisements, or give it an address")
	}
	options := netlink.RouteGetOptions{OifIndex: index, SrcAddr: source.AsSlice(), FIBMatch: true}
	// Without FIBMatch the kernel treats any address as on-link if the interface has no route to it.
	if _, err := netlink.RouteGetWithOptions(far.AsSlice(), &options); err != nil {
		return no("no "+family+" route out: "+errnoText(err),
			fmt.Sprintf("give it a default route; a high metric keeps other traffic where it is: ip route add default via GATEWAY dev %s metric 5000", i.Name))
	}
	options.FIBMatch = false
	routes, err := netlink.RouteGetWithOptions(far.AsSlice(), &options)
	if err != nil || len(routes) == 0 {
		return no("no "+family+" route out: "+errnoText(err), "look at `ip rule` and `ip route show table all`")
	}
	if routes[0].LinkIndex != index {
		return no(fmt.Sprintf("%s from %v would leave by interface %d", family, source, routes[0].LinkIndex),
			"a routing rule sends it elsewhere: look at `ip rule`")
	}
	if far.Is4() && i.strictReversePath(index, far) {
		return partly(fmt.Sprintf("leaves as %v, but answers are dropped (rp_filter is strict and the main route is elsewhere)", source),
			fmt.Sprintf("sysctl -w net.ipv4.conf.%s.rp_filter=2", i.Name))
	}
	return yes(fmt.Sprintf("leaves as %v", source))
}

// strictReversePath reports whether the kernel would drop an answer that arrives here: with rp_filter 1 (RFC 3704,
// strict) it must be the interface of the main route to the sender.
func (i Interface) strictReversePath(index int, far netip.Addr) bool {
	mode := max(readInt(ipv4Conf("all")), readInt(ipv4Conf(i.Name)))
	if mode != 1 {
		return false
	}
	routes, err := netlink.RouteGet(far.AsSlice())
	return err != nil || len(routes) == 0 || routes[0].LinkIndex != index
}

func ipv4Conf(name string) string {
	return filepath.Join("/proc/sys/net/ipv4/conf", name, "rp_filter")
}

func readInt(file string) int {
	n, _ := strconv.Atoi(readText(file))
	return n
}

// defaultRoutes returns the default routes of all tables, by interface index.
func defaultRoutes() (map[int][]Route, error) {
	found := map[int][]Route{}
	for family, name := range map[int]string{netlink.FAMILY_V4: "IPv4", netlink.FAMILY_V6: "IPv6"} {
		routes, err := netlink.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
		if err != nil && !errors.Is(err, unix.EAFNOSUPPORT) {
			return nil, err
		}
		for _, r := range routes {
			if r.Type != unix.RTN_UNICAST || !isDefault(r.Dst) {
				continue
			}
			hops := r.MultiPath
			if len(hops) == 0 {
				hops = []*netlink.NexthopInfo{{LinkIndex: r.LinkIndex, Gw: r.Gw}}
			}
			for _, hop := range hops {
				found[hop.LinkIndex] = append(found[hop.LinkIndex], Route{Family: name, Via: ipText(hop.Gw), Table: r.Table, Metric: r.Priority})
			}
		}
	}
	for _, routes := range found {
		slices.SortFunc(routes, func(a, b Route) int {
			return cmp.Or(cmp.Compare(a.Family, b.Family), cmp.Compare(a.Table, b.Table), cmp.Compare(a.Metric, b.Metric))
		})
	}
	return found, nil
}

func isDefault(n *net.IPNet) bool {
	if n == nil {
		return true
	}
	ones, _ := n.Mask.Size()
	return ones == 0
}

func ipText(ip net.IP) string {
	if len(ip) == 0 {
		return ""
	}
	return ip.String()
}

func errnoText(err error) string {
	if no, ok := errors.AsType[unix.Errno](err); ok {
		return no.Error()
	}
	return "none was found"
}

// pathsCheck reports whether there are several paths.
func pathsCheck(ways []Interface) Result {
	names := make([]string, len(ways))
	for i, w := range ways {
		names[i] = w.Name
	}
	const hint = "connect to a second network: another uplink, a phone's tethering, a second Wi-Fi"
	switch len(ways) {
	case 0:
		return no("no interface is a way out", hint)
	case 1:
		return partly("one way out: "+names[0], hint)
	}
	return yes(fmt.Sprintf("%d ways out: %s", len(ways), list(names)))
}

// observersCheck reports whether the paths have different first routers. Paths through one router share an observer.
func observersCheck(ways []Interface) Result {
	users := map[string][]string{}
	for _, w := range ways {
		for _, r := range w.Defaults {
			if r.Via != "" && !slices.Contains(users[r.Via], w.Name) {
				users[r.Via] = append(users[r.Via], w.Name)
			}
		}
	}
	for via, names := range users {
		// A link-local address is a different router on each link.
		if ip, err := netip.ParseAddr(via); len(names) > 1 && err == nil && !ip.IsLinkLocalUnicast() {
			slices.Sort(names)
			return partly(fmt.Sprintf("%s all leave by %s", list(names), via),
				"that may be one router, which then sees all of their paths; use another network for one of them")
		}
	}
	if len(ways) < 2 {
		return unknown("fewer than two ways out to compare", "")
	}
	return yes("no two ways out share a router that can be told from here")
}
