package path

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
)

func init() {
	Register(Kind{Scheme: "src", Argument: "address", Carries: Datagrams | Streams, New: newSourcePath})
}

// sourcePath is one source address. Policy routing chooses the device, and the path then keeps to that device.
type sourcePath struct {
	spec   Spec
	source netip.Addr
	mark   uint32

	mu     sync.Mutex
	device string // by which the path first left, and must continue to leave
}

func newSourcePath(s Spec, o Options) (Path, error) {
	a, err := netip.ParseAddr(s.Arg)
	if err != nil || a.Zone() != "" || a.IsUnspecified() || a.IsMulticast() {
		return nil, &Error{What: "path " + s.Name, Why: fmt.Sprintf("%q is no address to send from", s.Arg),
			Hint: "write an address of this machine, for example " + s.Name + "=src:192.0.2.7"}
	}
	return &sourcePath{spec: s, source: a.Unmap(), mark: o.Mark}, nil
}

// Open binds a socket to the address, and to the device of its route.
func (p *sourcePath) Open(ctx context.Context, to netip.AddrPort) (Flow, error) {
	return openFlow(ctx, p.spec, p.binding, to)
}

func (p *sourcePath) Dial(ctx context.Context, to Target) (net.Conn, error) {
	return dialFrom(ctx, p.binding, to)
}

func (p *sourcePath) binding(to netip.Addr) (binding, error) {
	what := "path " + p.spec.Name
	if to.Is4() != p.source.Is4() {
		return binding{}, &Error{What: what, Why: fmt.Sprintf("%v cannot send to %v: one is IPv4, the other IPv6", p.source, to)}
	}
	owner, err := deviceWith(p.source)
	if err != nil {
		return binding{}, &Error{What: what, Why: "cannot read the addresses of this machine", Err: err}
	}
	if owner == "" {
		return binding{}, &Error{What: what, Why: fmt.Sprintf("no device here has the address %v", p.source), Hint: "`heddle doctor` lists the addresses"}
	}
	out, err := lookup(to, "", p.source, p.mark)
	if err != nil {
		return binding{}, noRoute(what, to, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.device == "" {
		p.device = out.device
	}
	if p.device != out.device {
		return binding{}, &Error{What: what, Why: fmt.Sprintf("%v would now leave by %s instead of %s", p.source, out.device, p.device),
			Hint: "look at `ip rule` and `ip route`; Heddle does not follow a path to another network"}
	}
	b := binding{local: netip.AddrPortFrom(p.source, 0), mark: p.mark}
	if tiesToDevices {
		b.device = out.device
	}
	return b, nil
}

func (p *sourcePath) Describe() Info {
	info := Info{Name: p.spec.Name, Kind: p.spec.Kind, Arg: p.spec.Arg, Observer: "src:" + p.source.String(), Fragments: true,
		Claim: "the network that " + p.source.String() + " leaves by sees the server's address, that address, and the size and time of each packet that takes this path; not its content, and no packet of the other paths"}
	owner, err := deviceWith(p.source)
	if err == nil && owner == "" {
		err = &Error{What: "path " + p.spec.Name, Why: fmt.Sprintf("no device here has the address %v", p.source), Hint: "`heddle doctor` lists the addresses"}
	}
	if !tiesToDevices {
		info.Claim += "; this system's routes choose that network, and nothing ties the path to it"
	}
	p.mu.Lock()
	device := p.device
	p.mu.Unlock()
	if device == "" {
		device = owner
	}
	// One network sees all addresses of a device. Loopback is no network, so each of its addresses is an observer.
	if device != "" && device != "lo" {
		info.Observer = "if:" + device
	}
	if err == nil {
		info.Addresses = []netip.Addr{p.source}
		info.MTU = mtuOf(device)
	}
	info.Explain(err)
	return info
}

// deviceWith returns the device that has addr, or "".
func deviceWith(addr netip.Addr) (string, error) {
	if addr.IsLoopback() {
		return "lo", nil
	}
	type question struct{ addr netip.Addr }
	return Ask(question{addr}, func() (string, error) { return findDevice(addr) })
}

func findDevice(addr netip.Addr) (string, error) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return "", err
	}
	for _, i := range interfaces {
		addresses, err := i.Addrs()
		if err != nil {
			continue // the device disappeared during the search
		}
		for _, a := range addresses {
			if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Unmap() == addr {
				return i.Name, nil
			}
		}
	}
	return "", nil
}
