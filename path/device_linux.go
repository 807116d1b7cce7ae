package path

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
)

func init() {
	Register(Kind{Scheme: "if", Argument: "device", Carries: Datagrams | Streams, New: newDevicePath})
}

// devicePath is one network device with its own address and routes.
type devicePath struct {
	spec Spec
	mark uint32
}

func newDevicePath(s Spec, o Options) (Path, error) {
	if len(s.Arg) > 15 || strings.ContainsAny(s.Arg, "/ \t") {
		return nil, &Error{What: "path " + s.Name, Why: fmt.Sprintf("%q is no name of a device", s.Arg),
			Hint: "`heddle doctor` lists the devices"}
	}
	return &devicePath{spec: s, mark: o.Mark}, nil
}

// Open binds a socket to the device and to the source address of the device's own route.
func (p *devicePath) Open(ctx context.Context, to netip.AddrPort) (Flow, error) {
	return openFlow(ctx, p.spec, p.binding, to)
}

func (p *devicePath) binding(to netip.Addr) (binding, error) {
	what := "path " + p.spec.Name
	link, err := p.link()
	if err != nil {
		return binding{}, err
	}
	out, err := lookup(to, p.spec.Arg, netip.Addr{}, p.mark)
	if err != nil {
		return binding{}, noRoute(what, to, err)
	}
	own, err := addressesOf(link)
	if err != nil {
		return binding{}, &Error{What: what, Why: "cannot read the addresses of " + p.spec.Arg, Err: err}
	}
	// Without an address of its own, the device would borrow another device's, and reveal it to this path's observer.
	if !slices.Contains(own, out.source) {
		return binding{}, &Error{What: what, Why: fmt.Sprintf("%s has no address to reach %v from", p.spec.Arg, to),
			Hint: "wait for DHCP, or give the device an address"}
	}
	return binding{local: netip.AddrPortFrom(out.source, 0), device: p.spec.Arg, mark: p.mark}, nil
}

func (p *devicePath) link() (netlink.Link, error) {
	link, err := linkOf(p.spec.Arg)
	_, absent := errors.AsType[netlink.LinkNotFoundError](err)
	switch {
	case absent:
		return nil, &Error{What: "path " + p.spec.Name, Why: "no device is called " + p.spec.Arg, Hint: "devices here: " + deviceNames()}
	case err != nil:
		return nil, &Error{What: "path " + p.spec.Name, Why: "cannot look at " + p.spec.Arg, Err: err}
	case link.Attrs().Flags&net.FlagUp == 0:
		return nil, &Error{What: "path " + p.spec.Name, Why: p.spec.Arg + " is down", Hint: "ip link set " + p.spec.Arg + " up"}
	}
	return link, nil
}

func (p *devicePath) Describe() Info {
	info := Info{Name: p.spec.Name, Kind: p.spec.Kind, Arg: p.spec.Arg, Observer: "if:" + p.spec.Arg, Fragments: true,
		Claim: "the network behind " + p.spec.Arg + " sees the server's address, your address there, and the size and time of each packet that takes this path; not its content, and no packet of the other paths"}
	link, err := p.link()
	if err == nil {
		info.MTU = link.Attrs().MTU
		info.Addresses, err = addressesOf(link)
		if err == nil && len(info.Addresses) == 0 {
			err = &Error{What: "path " + p.spec.Name, Why: p.spec.Arg + " has no address", Hint: "wait for DHCP, or give the device an address"}
		}
	}
	info.Explain(err)
	return info
}

func (p *devicePath) Dial(ctx context.Context, to Target) (net.Conn, error) {
	return dialFrom(ctx, p.binding, to)
}

func deviceNames() string {
	type question struct{}
	interfaces, err := Ask(question{}, net.Interfaces)
	if err != nil {
		return "unknown"
	}
	var names []string
	for _, i := range interfaces {
		names = append(names, i.Name)
	}
	return strings.Join(names, ", ")
}
