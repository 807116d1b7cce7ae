package nstest

import (
	"errors"
	"fmt"
	"testing"

	"github.com/vishvananda/netlink"
)

// LAN joins namespaces by a network of Ethernet, and waits until that carries packets.
func LAN(t testing.TB, ends ...End) {
	t.Helper()
	const bridge = "lan"
	hub := New(t)
	snoop := false // it would drop questions of IPv6 for an address until it knows who listens
	hub.Do(t, func() error {
		return errors.Join(netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: bridge}, MulticastSnooping: &snoop}), SetUp(bridge, true))
	})
	for i, end := range ends {
		port := fmt.Sprintf("port%d", i)
		Link(t, End{In: hub, Device: port}, end)
		hub.Do(t, func() error {
			device, err := netlink.LinkByName(port)
			if err != nil {
				return err
			}
			master, err := netlink.LinkByName(bridge)
			if err != nil {
				return err
			}
			return netlink.LinkSetMaster(device, master)
		})
	}
}
