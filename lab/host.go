package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Host is one host of a world that is up.
type Host struct {
	spec HostSpec
	in   *Instance
	ns   *namespace
}

// Name is the host's name.
func (h *Host) Name() string { return h.spec.Name }

// Dir is the host's own directory on this machine. It goes with the world.
func (h *Host) Dir() string { return hostDir(h.in.state.Name, h.spec.Name) }

// RunDir is the host's HEDDLE_RUN_DIR.
func (h *Host) RunDir() string { return filepath.Join(h.Dir(), "run") }

// Namespace is the path of the host's network namespace.
func (h *Host) Namespace() string { return filepath.Join(netnsDir, h.ns.name) }

// Command prepares a program in the host's network namespace, with its own /etc/hosts, /etc/resolv.conf,
// /run/wireguard, /sys and HEDDLE_RUN_DIR. It shares the rest of the machine.
func (h *Host) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Args = append([]string{enterName, h.in.state.Name, h.spec.Name, name}, args...)
	return cmd
}

// Do runs f on a thread in the host's network namespace. Sockets that f opens stay there; goroutines run outside.
func (h *Host) Do(f func() error) error { return h.ns.do(f) }

// OpenTUN makes a layer 3 device in the host, which lasts until the file is closed. A read or write carries one IP packet.
func (h *Host) OpenTUN(device string) (file *os.File, err error) {
	err = h.Do(func() error {
		file, err = openTUN(device)
		return err
	})
	return file, err
}

// Configure sets the addresses and routes of a device that a program made, such as a tunnel, and brings it up. It
// replaces other addresses. MTU 0 keeps the MTU.
func (h *Host) Configure(device string, mtu int, addrs []netip.Prefix, routes []Route) error {
	link, err := h.device(device)
	if err != nil {
		return err
	}
	if mtu > 0 {
		if err := h.ns.link.LinkSetMTU(link, mtu); err != nil {
			return fmt.Errorf("host %s: MTU of %s: %w", h.spec.Name, device, err)
		}
	}
	if err := h.setUp(device, true); err != nil {
		return err
	}
	if err := h.address(device, addrs); err != nil {
		return err
	}
	for _, r := range routes {
		r.Device = device
		if err := h.setRoute(r); err != nil {
			return err
		}
	}
	return nil
}

// Addrs returns the host's addresses, in the order of its links.
func (h *Host) Addrs() []netip.Addr { return h.in.state.World.addrsOf(h.spec.Name) }

func (h *Host) setUp(device string, up bool) error {
	link, err := h.device(device)
	if err != nil {
		return err
	}
	if up {
		err = h.ns.link.LinkSetUp(link)
	} else {
		err = h.ns.link.LinkSetDown(link)
	}
	if err != nil {
		return fmt.Errorf("host %s: set device %s up or down: %w", h.spec.Name, device, err)
	}
	return nil
}

func (h *Host) device(name string) (netlink.Link, error) {
	link, err := h.ns.link.LinkByName(name)
	if err != nil {
		return nil, fmt.Errorf("host %s: device %s: %w", h.spec.Name, name, err)
	}
	return link, nil
}

// address replaces the addresses of a device.
func (h *Host) address(device string, want []netip.Prefix) error {
	link, err := h.device(device)
	if err != nil {
		return err
	}
	have, err := h.ns.link.AddrList(link, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("host %s: addresses of %s: %w", h.spec.Name, device, err)
	}
	// Remove the old ones first: with a primary address the kernel also removes all others of its network.
	for _, a := range have {
		ip, _ := netip.AddrFromSlice(a.IP)
		ones, _ := a.Mask.Size()
		if old := netip.PrefixFrom(ip.Unmap(), ones); !slices.Contains(want, old) && !ip.IsLinkLocalUnicast() {
			if err := h.ns.link.AddrDel(link, &a); err != nil {
				return fmt.Errorf("host %s: remove address %s from %s: %w", h.spec.Name, old, device, err)
			}
		}
	}
	for _, p := range want {
		if err := h.ns.link.AddrReplace(link, netlinkAddr(p)); err != nil {
			return fmt.Errorf("host %s: address %s on %s: %w", h.spec.Name, p, device, err)
		}
	}
	return nil
}

func netlinkAddr(p netip.Prefix) *netlink.Addr {
	a := &netlink.Addr{IPNet: ipNet(p)}
	if p.Addr().Is6() {
		a.Flags = unix.IFA_F_NODAD
	}
	return a
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// route sets the host's routes that the filter accepts.
func (h *Host) route(filter func(Route) bool) error {
	for _, r := range h.spec.Routes {
		if filter(r) {
			if err := h.setRoute(r); err != nil {
				return err
			}
		}
	}
	return nil
}

func (h *Host) setRoute(r Route) error {
	link, err := h.device(r.Device)
	if err != nil {
		return err
	}
	route := &netlink.Route{LinkIndex: link.Attrs().Index, Priority: r.Metric, Dst: ipNet(r.To)}
	if r.Via.IsValid() {
		route.Gw = r.Via.AsSlice()
	} else {
		route.Scope = netlink.SCOPE_LINK
	}
	err = h.ns.link.RouteReplace(route)
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("host %s: route %s via %s: %w", h.spec.Name, r.To, r.Via, err)
	}
	return nil
}

// Own lets the host take each address of a network for its own.
func (h *Host) Own(network netip.Prefix) error {
	lo, err := h.device("lo")
	if err != nil {
		return err
	}
	route := &netlink.Route{LinkIndex: lo.Attrs().Index, Type: unix.RTN_LOCAL, Scope: netlink.SCOPE_HOST, Table: unix.RT_TABLE_LOCAL, Dst: ipNet(network)}
	if err := h.ns.link.RouteReplace(route); err != nil {
		return fmt.Errorf("host %s: own addresses %v: %w", h.spec.Name, network, err)
	}
	return nil
}

// WireGuardDir is what programs in the host see as /run/wireguard.
func (h *Host) WireGuardDir() string {
	return filepath.Join(h.Dir(), "wireguard")
}
