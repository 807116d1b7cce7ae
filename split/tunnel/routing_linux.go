package tunnel

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"heddle/internal/iprule"
	"heddle/internal/journal"
)

const mainTable = unix.RT_TABLE_MAIN

func familyFlag(v6 bool) string {
	if v6 {
		return "-6"
	}
	return "-4"
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// address is an address of the tunnel's device.
type address struct {
	ofDevice
	Device string       `json:"device"`
	Prefix netip.Prefix `json:"prefix"`
}

func (c *address) String() string {
	text := fmt.Sprintf("ip %s address add %s dev %s", familyFlag(c.Prefix.Addr().Is6()), c.Prefix, c.Device)
	if c.flags() != 0 {
		text += " nodad"
	}
	return text
}

// flags turns off the search for duplicates, which a tunnel's far end cannot have. Until it ends, the address cannot be used.
func (c *address) flags() int {
	if c.Prefix.Addr().Is6() {
		return unix.IFA_F_NODAD
	}
	return 0
}

func (c *address) Apply() error {
	link, err := netlink.LinkByName(c.Device)
	if err != nil {
		return err
	}
	return netlink.AddrAdd(link, &netlink.Addr{IPNet: ipNet(c.Prefix), Flags: c.flags()})
}

// linkUp sets the MTU and brings the device up.
type linkUp struct {
	ofDevice
	Device string `json:"device"`
	MTU    int    `json:"mtu"`
}

func (c *linkUp) String() string { return fmt.Sprintf("ip link set mtu %d up dev %s", c.MTU, c.Device) }

func (c *linkUp) Apply() error {
	link, err := netlink.LinkByName(c.Device)
	if err != nil {
		return err
	}
	if err := netlink.LinkSetMTU(link, c.MTU); err != nil {
		return err
	}
	return netlink.LinkSetUp(link)
}

// setMTU changes the MTU of a device that is up.
func setMTU(name string, mtu int) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	return netlink.LinkSetMTU(link, mtu)
}

// route sends a destination into the tunnel.
type route struct {
	ofDevice
	Device      string       `json:"device"`
	Destination netip.Prefix `json:"destination"`
	Table       uint32       `json:"table"`
}

func (c *route) String() string {
	text := fmt.Sprintf("ip %s route add %s dev %s", familyFlag(c.Destination.Addr().Is6()), c.Destination, c.Device)
	if c.Table != mainTable {
		text += fmt.Sprintf(" table %d", c.Table)
	}
	return text
}

func (c *route) Apply() error {
	link, err := netlink.LinkByName(c.Device)
	if err != nil {
		return err
	}
	r := netlink.Route{LinkIndex: link.Attrs().Index, Dst: ipNet(c.Destination), Table: int(c.Table), Protocol: unix.RTPROT_BOOT}
	if c.Destination.Addr().Is4() {
		r.Scope = netlink.SCOPE_LINK
	}
	err = netlink.RouteAdd(&r)
	if !errors.Is(err, unix.EEXIST) {
		return err
	}
	// The device's own address may have created this route.
	same, listErr := netlink.RouteListFiltered(iprule.Family(c.Destination.Addr().Is6()), &r, netlink.RT_FILTER_OIF|netlink.RT_FILTER_DST|netlink.RT_FILTER_TABLE)
	if listErr != nil || len(same) == 0 {
		return err
	}
	return nil
}

// rule is a policy routing rule. Its priority is chosen before it is made, so that undoing removes no other rule.
type rule struct {
	V6       bool   `json:"v6"`
	Priority int    `json:"priority"`
	Mark     uint32 `json:"mark"` // packets without it look in Table; 0: all do, but skip its default route
	Table    uint32 `json:"table"`
}

func (c *rule) String() string {
	text := fmt.Sprintf("ip %s rule add priority %d ", familyFlag(c.V6), c.Priority)
	if c.Mark == 0 {
		return text + fmt.Sprintf("table %d suppress_prefixlength 0", c.Table)
	}
	return text + fmt.Sprintf("not fwmark %d table %d", c.Mark, c.Table)
}

func (c *rule) netlink() *netlink.Rule {
	r := netlink.NewRule()
	r.Family, r.Priority, r.Table = iprule.Family(c.V6), c.Priority, int(c.Table)
	if c.Mark == 0 {
		r.SuppressPrefixlen = 0
	} else {
		r.Mark, r.Invert = c.Mark, true
	}
	return r
}

func (c *rule) Apply() error { return netlink.RuleAdd(c.netlink()) }

func (c *rule) Undo() error { return journal.IgnoreGone(netlink.RuleDel(c.netlink())) }
