package bpf

import "github.com/vishvananda/netlink"

// EthernetHeader is the length of an Ethernet header in bytes.
const EthernetHeader = 14

// HeaderOf returns the length of a device's link header in bytes, or false if the kind of device is not known.
func HeaderOf(l netlink.Link) (header int, known bool) {
	switch l.Attrs().EncapType {
	case "ether":
		return EthernetHeader, true
	case "none", "ppp", "rawip", "tunnel", "sit", "ipip":
		return 0, true
	}
	return 0, false
}
