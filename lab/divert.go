package lab

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The routing rules and table of a diversion. The kernel's own rules for local addresses have lower priority numbers.
const (
	divertTable    = 7070
	divertPriority = 7070
)

// Diversion is a device that all packets cross which a host forwards. A read takes one of them, and a write lets one pass, or
// another one in its place.
type Diversion struct {
	*os.File
	host *Host
}

var anything = []*net.IPNet{
	{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)},
	{IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)},
}

// Divert makes a device with this name on a host that forwards packets, at most one on a host. Packets that are written to it
// follow the host's other rules.
func (h *Host) Divert(device string) (*Diversion, error) {
	file, err := h.OpenTUN(device)
	if err != nil {
		return nil, err
	}
	d := &Diversion{file, h}
	err = h.Do(func() error {
		if err := forwards(); err != nil {
			return err
		}
		link, err := netlink.LinkByName(device)
		if err != nil {
			return err
		}
		// The router's other devices enforce the MTU.
		if err := errors.Join(netlink.LinkSetMTU(link, 65535), netlink.LinkSetUp(link)); err != nil {
			return fmt.Errorf("device %s: %w", device, err)
		}
		for _, to := range anything {
			route := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: to, Table: divertTable, Scope: netlink.SCOPE_LINK}
			if err := netlink.RouteReplace(route); err != nil {
				return fmt.Errorf("route to %s over %s: %w", to, device, err)
			}
		}
		return d.eachRule(netlink.RuleAdd)
	})
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// Close lets all packets pass again. The routes go with the device.
func (d *Diversion) Close() error {
	err := d.host.Do(func() error { // before the device goes, so that no packet is on its way into it
		return d.eachRule(func(r *netlink.Rule) error {
			if err := netlink.RuleDel(r); err != nil && !errors.Is(err, unix.ENOENT) {
				return err
			}
			return nil
		})
	})
	return errors.Join(err, d.File.Close())
}

// eachRule calls do with the rules that send what arrives on each of the host's other devices to the table.
func (d *Diversion) eachRule(do func(*netlink.Rule) error) error {
	links, err := netlink.LinkList()
	if err != nil {
		return err
	}
	for _, link := range links {
		name := link.Attrs().Name
		if name == d.Name() || link.Attrs().Flags&net.FlagLoopback != 0 {
			continue
		}
		for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
			rule := netlink.NewRule()
			rule.Family, rule.IifName, rule.Table, rule.Priority = family, name, divertTable, divertPriority
			if err := do(rule); err != nil {
				return fmt.Errorf("rule for what arrives on %s: %w", name, err)
			}
		}
	}
	return nil
}

// forwards returns an error if the host of the calling thread is not a router.
func forwards() error {
	on, err := os.ReadFile("/proc/sys/net/ipv4/ip_forward")
	if err != nil {
		return err
	}
	if strings.TrimSpace(string(on)) != "1" {
		return errors.New("it forwards no packets")
	}
	return nil
}
