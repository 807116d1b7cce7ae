package survey

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"

	"heddle/path"
)

// FindUplink returns how packets to an address leave by a path of kind if or src, or by the system's routes for the zero
// spec. scamper chooses the route of probes only by destination, so it needs the gateway. FindUplink fails if there is none
// and probes would leave elsewhere.
func FindUplink(spec path.Spec, to netip.Addr) (Uplink, error) {
	fail := func(why, hint string, err error) (Uplink, error) {
		return Uplink{}, &path.Error{What: "path " + spec.Name, Why: why, Hint: hint, Err: err}
	}
	plain, plainErr := route(to, netlink.RouteGetOptions{})
	if spec == (path.Spec{}) {
		if plainErr != nil {
			return Uplink{}, &path.Error{What: "survey", Why: fmt.Sprintf("no route leads to %v", to), Err: plainErr}
		}
		return Uplink{Device: plain.Device, NoFrames: plain.NoFrames}, nil
	}
	var options netlink.RouteGetOptions
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
		return fail("a path of kind "+spec.Kind+" cannot be surveyed", "survey the uplinks, such as --via home=if:eth0", nil)
	}
	u, err := route(to, options)
	if err != nil {
		return fail(fmt.Sprintf("no route to %v leaves by it", to), "`heddle doctor` shows the routes", err)
	}
	u.Name = spec.Name
	if spec.Kind == "src" {
		u.Source = netip.MustParseAddr(spec.Arg).Unmap()
	}
	if !u.NoFrames && u.Gateway.IsValid() && !u.Gateway.IsLinkLocalUnicast() {
		return u, nil
	}
	u.Gateway = netip.Addr{}
	if plainErr == nil && plain.Device == u.Device {
		return u, nil
	}
	return fail(u.Device+" has no gateway that scamper could be told, so its probes would leave elsewhere",
		"survey by it while it has the default route", nil)
}

// route asks the kernel how it would send to an address.
func route(to netip.Addr, options netlink.RouteGetOptions) (Uplink, error) {
	// Without a matching route the kernel would guess that the address is on the device's link.
	options.FIBMatch = true
	if _, err := netlink.RouteGetWithOptions(to.AsSlice(), &options); err != nil {
		return Uplink{}, err
	}
	options.FIBMatch = false
	routes, err := netlink.RouteGetWithOptions(to.AsSlice(), &options)
	if err != nil {
		return Uplink{}, err
	}
	if len(routes) == 0 {
		return Uplink{}, errors.New("the kernel names none")
	}
	link, err := netlink.LinkByIndex(routes[0].LinkIndex)
	if err != nil {
		return Uplink{}, err
	}
	encapsulation := link.Attrs().EncapType
	source, _ := netip.AddrFromSlice(routes[0].Src)
	gateway, _ := netip.AddrFromSlice(routes[0].Gw)
	return Uplink{Device: link.Attrs().Name, Source: source.Unmap(), Gateway: gateway.Unmap(), NoFrames: encapsulation != "ether" && encapsulation != "loopback"}, nil
}
