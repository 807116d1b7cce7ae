package survey

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"

	"heddle/path"
)

// Uplink is a way out of this machine, as scamper must be told of it. The zero value leaves all to the system's routes.
type Uplink struct {
	Name    string
	Device  string
	Source  netip.Addr
	Gateway netip.Addr
}

// FindUplink says how packets to an address leave by a path of kind if: or src:. scamper looks for the way of its probes by
// the address that they go to, whatever their source; so it has to be told the gateway. It fails where there is none and
// probes would leave elsewhere.
func FindUplink(spec path.Spec, to netip.Addr) (Uplink, error) {
	u := Uplink{Name: spec.Name}
	fail := func(why, hint string, err error) (Uplink, error) {
		return Uplink{}, &path.Error{What: "path " + spec.Name, Why: why, Hint: hint, Err: err}
	}
	options := &netlink.RouteGetOptions{}
	switch spec.Kind {
	case "if":
		link, err := netlink.LinkByName(spec.Arg)
		if err != nil {
			return fail("no device is called "+spec.Arg, "`heddle doctor` lists the devices", err)
		}
		options.OifIndex = link.Attrs().Index
	case "src":
		source, err := netip.ParseAddr(spec.Arg)
		if err != nil {
			return fail(fmt.Sprintf("%q is no address", spec.Arg), "", nil)
		}
		options.SrcAddr = source.AsSlice()
	default:
		return fail("a way out of kind "+spec.Kind+" cannot be surveyed", "survey the uplinks, such as --via home=if:eth0", nil)
	}
	// Without a matching route the kernel would guess that the address is on the device's link.
	options.FIBMatch = true
	_, err := netlink.RouteGetWithOptions(to.AsSlice(), options)
	options.FIBMatch = false
	var routes []netlink.Route
	if err == nil {
		routes, err = netlink.RouteGetWithOptions(to.AsSlice(), options)
	}
	if err == nil && len(routes) == 0 {
		err = errors.New("the kernel names none")
	}
	if err != nil {
		return fail(fmt.Sprintf("no route to %v leaves by it", to), "`heddle doctor` shows the routes", err)
	}
	link, err := netlink.LinkByIndex(routes[0].LinkIndex)
	if err != nil {
		return fail("its device is gone", "", err)
	}
	u.Device = link.Attrs().Name
	u.Source, _ = netip.AddrFromSlice(routes[0].Src)
	u.Gateway, _ = netip.AddrFromSlice(routes[0].Gw)
	u.Source, u.Gateway = u.Source.Unmap(), u.Gateway.Unmap()
	if spec.Kind == "src" {
		u.Source = netip.MustParseAddr(spec.Arg).Unmap()
	}
	if u.Gateway.IsValid() && !u.Gateway.IsLinkLocalUnicast() {
		return u, nil
	}
	u.Gateway = netip.Addr{}
	if plain, err := netlink.RouteGet(to.AsSlice()); err == nil && len(plain) > 0 && plain[0].LinkIndex == routes[0].LinkIndex {
		return u, nil
	}
	return fail(u.Device+" has no gateway with an address of its own, so scamper's probes would leave elsewhere",
		"survey by it while it has the default route", nil)
}
