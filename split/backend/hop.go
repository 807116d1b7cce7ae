package backend

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"heddle/internal/bpf"
	"heddle/path"
)

// Hop is how packets of a path leave.
type Hop struct {
	Device string
	Index  int
	Header int // length of the device's link header in bytes
	MTU    int
	Link   int // MTU of the device, if the route has a smaller one
	Source netip.Addr
	Next   netip.Addr // the gateway, or the server if it is on the link
}

// findHop asks the kernel how a path reaches the server. source is the path's own address.
func findHop(s path.Spec, source netip.Addr, server netip.Addr, mark uint32) (Hop, error) {
	type question struct {
		spec           path.Spec
		source, server netip.Addr
		mark           uint32
	}
	return path.Ask(question{s, source, server, mark}, func() (Hop, error) { return askHop(s, source, server, mark) })
}

func askHop(s path.Spec, source netip.Addr, server netip.Addr, mark uint32) (Hop, error) {
	what := "path " + s.Name
	options := &netlink.RouteGetOptions{Mark: mark}
	switch s.Kind {
	case "if":
		options.Oif = s.Arg
	case "src":
		options.SrcAddr = source.AsSlice()
	}
	routes, err := netlink.RouteGetWithOptions(server.AsSlice(), options)
	if err == nil && len(routes) == 0 {
		err = unix.ENETUNREACH
	}
	if err != nil {
		return Hop{}, &path.Error{What: what, Why: "no way to " + server.String(), Err: err}
	}
	link, err := netlink.LinkByIndex(routes[0].LinkIndex)
	if err != nil {
		return Hop{}, &path.Error{What: what, Why: "its device is gone", Err: err}
	}
	header, known := bpf.HeaderOf(link)
	if !known {
		return Hop{}, &path.Error{What: what, Why: fmt.Sprintf("%s is a device of the kind %s, whose headers this backend does not know", link.Attrs().Name, link.Attrs().EncapType),
			Hint: "use --backend relay"}
	}
	h := Hop{Device: link.Attrs().Name, Index: link.Attrs().Index, Header: header, MTU: link.Attrs().MTU, Source: source, Next: server}
	if m := routes[0].MTU; m > 0 {
		h.MTU, h.Link = m, h.MTU
	}
	if gateway, ok := netip.AddrFromSlice(routes[0].Gw); ok {
		h.Next = gateway.Unmap()
	} else if via, ok := routes[0].Via.(*netlink.Via); ok {
		if gateway, ok := netip.AddrFromSlice(via.Addr); ok {
			h.Next = gateway.Unmap()
		}
	}
	return h, nil
}

// ExitOf returns the index of the device on this machine's own route to the server, or 0 without a route.
func ExitOf(server netip.Addr) (int, error) {
	routes, err := netlink.RouteGetWithOptions(server.AsSlice(), &netlink.RouteGetOptions{})
	if errors.Is(err, unix.ENETUNREACH) || errors.Is(err, unix.EHOSTUNREACH) || err == nil && len(routes) == 0 {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return routes[0].LinkIndex, nil
}
