package lab

import (
	"fmt"
	"net/netip"

	inside "heddle/internal/netns"
)

// Bridge replaces the host's networks by one, in which its links are ports of a bridge. join makes the bridge, a device of the given name, of the
// devices that are its ports. The bridge gets their addresses and the host's routes. Both ends of each link compute checksums in software, since a
// bridge takes packets as they are.
func (h *Host) Bridge(name string, join func(ports ...string) error) error {
	var ports []string
	var addrs []netip.Prefix
	for _, l := range h.in.state.World.Links {
		near, far := l.A, l.B
		if far.Host == h.spec.Name {
			near, far = far, near
		}
		if near.Host != h.spec.Name {
			continue
		}
		if l.Emulated() {
			return fmt.Errorf("host %s: link %s is emulated, so it does not carry Ethernet frames for a bridge", h.spec.Name, l.Name)
		}
		for _, end := range []End{near, far} {
			if err := h.in.Host(end.Host).Do(func() error { return inside.ChecksumsInSoftware(end.Device) }); err != nil {
				return fmt.Errorf("host %s: %w", end.Host, err)
			}
		}
		if err := h.Configure(near.Device, 0, nil, nil); err != nil {
			return err
		}
		ports, addrs = append(ports, near.Device), append(addrs, near.Addrs...)
	}
	if err := join(ports...); err != nil {
		return fmt.Errorf("host %s: bridge %s: %w", h.spec.Name, name, err)
	}
	return h.Configure(name, 0, addrs, h.spec.Routes)
}
