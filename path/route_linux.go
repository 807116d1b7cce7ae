package path

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// egress is how the kernel would send to one address.
type egress struct {
	device string
	index  int
	source netip.Addr
	mtu    int
}

// lookup asks the kernel for the route to dst, by device and from source if given. It fails if no route matches: with a
// device but no route, the kernel would assume that dst is on the link.
func lookup(dst netip.Addr, device string, source netip.Addr, mark uint32) (egress, error) {
	type question struct {
		dst    netip.Addr
		device string
		source netip.Addr
		mark   uint32
	}
	return Ask(question{dst, device, source, mark}, func() (egress, error) { return findEgress(dst, device, source, mark) })
}

func findEgress(dst netip.Addr, device string, source netip.Addr, mark uint32) (egress, error) {
	options := &netlink.RouteGetOptions{Mark: mark}
	if device != "" {
		link, err := netlink.LinkByName(device)
		if err != nil {
			return egress{}, err
		}
		options.OifIndex = link.Attrs().Index
	}
	if source.IsValid() {
		options.SrcAddr = source.AsSlice()
	}
	options.FIBMatch = true
	if _, err := netlink.RouteGetWithOptions(dst.AsSlice(), options); err != nil {
		return egress{}, err
	}
	options.FIBMatch = false
	routes, err := netlink.RouteGetWithOptions(dst.AsSlice(), options)
	if err != nil {
		return egress{}, err
	}
	if len(routes) == 0 {
		return egress{}, unix.ENETUNREACH
	}
	return describeRoute(routes[0], source)
}

func describeRoute(r netlink.Route, source netip.Addr) (egress, error) {
	link, err := netlink.LinkByIndex(r.LinkIndex)
	if err != nil {
		return egress{}, err
	}
	out := egress{device: link.Attrs().Name, index: r.LinkIndex, mtu: link.Attrs().MTU, source: source}
	if src, ok := netip.AddrFromSlice(r.Src); ok {
		out.source = src.Unmap()
	}
	if r.MTU > 0 {
		out.mtu = r.MTU
	}
	return out, nil
}

func linkOf(name string) (netlink.Link, error) {
	type question struct{ name string }
	return Ask(question{name}, func() (netlink.Link, error) { return netlink.LinkByName(name) })
}

// addressesOf lists the usable unicast addresses of a device, those of global scope first.
func addressesOf(link netlink.Link) ([]netip.Addr, error) {
	type question struct{ index int }
	return Ask(question{link.Attrs().Index}, func() ([]netip.Addr, error) { return listAddresses(link) })
}

func listAddresses(link netlink.Link) ([]netip.Addr, error) {
	list, err := netlink.AddrList(link, netlink.FAMILY_ALL)
	if err != nil {
		return nil, err
	}
	var global, local []netip.Addr
	for _, a := range list {
		addr, ok := netip.AddrFromSlice(a.IP)
		if !ok || a.Flags&(unix.IFA_F_TENTATIVE|unix.IFA_F_DADFAILED) != 0 {
			continue
		}
		if addr = addr.Unmap(); addr.IsLinkLocalUnicast() {
			local = append(local, addr)
		} else {
			global = append(global, addr)
		}
	}
	return append(global, local...), nil
}

func noRoute(what string, dst netip.Addr, err error) error {
	family := "IPv4"
	if dst.Is6() {
		family = "IPv6"
	}
	_, absent := errors.AsType[netlink.LinkNotFoundError](err)
	switch {
	case absent:
		return &Error{What: what, Why: "the device is gone", Hint: "`heddle doctor` lists the devices"}
	case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH):
		return &Error{What: what, Why: fmt.Sprintf("no %s route to %v leaves by it", family, dst),
			Hint: "give the device a default route (a higher metric will do); `heddle doctor` shows the routes"}
	}
	return &Error{What: what, Why: fmt.Sprintf("no way to %v", dst), Err: err}
}

func mtuOf(device string) int {
	link, err := linkOf(device)
	if err != nil {
		return 0
	}
	return link.Attrs().MTU
}
