package censor

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"heddle/lab"
)

// Device is the TUN device that the packets cross: those that pass go out and come back.
const Device = "censor"

// The routing rules and table. The kernel's own rules for local addresses have lower priority numbers.
const (
	table    = 7070
	priority = 7070
)

var anything = []*net.IPNet{
	{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)},
	{IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)},
}

// divert makes the device on a host and sends forwarded packets through it. Returning packets use the host's other rules.
func divert(host *lab.Host) (*os.File, error) {
	device, err := host.OpenTUN(Device)
	if err != nil {
		return nil, err
	}
	err = host.Do(func() error {
		if err := forwards(); err != nil {
			return err
		}
		link, err := netlink.LinkByName(Device)
		if err != nil {
			return err
		}
		// The router's other devices enforce the MTU.
		if err := errors.Join(netlink.LinkSetMTU(link, 65535), netlink.LinkSetUp(link)); err != nil {
			return fmt.Errorf("device %s: %w", Device, err)
		}
		for _, to := range anything {
			route := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: to, Table: table, Scope: netlink.SCOPE_LINK}
			if err := netlink.RouteReplace(route); err != nil {
				return fmt.Errorf("route to %s over %s: %w", to, Device, err)
			}
		}
		return eachRule(netlink.RuleAdd)
	})
	if err != nil {
		return nil, errors.Join(err, restore(host), device.Close())
	}
	return device, nil
}

// restore removes the rules; the routes go with the device.
func restore(host *lab.Host) error {
	return host.Do(func() error {
		return eachRule(func(r *netlink.Rule) error {
			if err := netlink.RuleDel(r); err != nil && !errors.Is(err, unix.ENOENT) {
				return err
			}
			return nil
		})
	})
}

// eachRule calls do with the rules that send what arrives on each of the host's devices to the table.
func eachRule(do func(*netlink.Rule) error) error {
	links, err := netlink.LinkList()
	if err != nil {
		return err
	}
	for _, link := range links {
		name := link.Attrs().Name
		if name == Device || link.Attrs().Flags&net.FlagLoopback != 0 {
			continue
		}
		for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
			rule := netlink.NewRule()
			rule.Family, rule.IifName, rule.Table, rule.Priority = family, name, table, priority
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
