package lab

import (
	"fmt"
	"net/netip"
	"regexp"

	"heddle/path"
)

// World describes hosts and the links between them.
type World struct {
	Name   string // for `heddle lab up`: lower-case letters, digits and '-'
	About  string // purpose, in one line
	Client string // host that captures are about, or empty; they record its addresses
	Hosts  []HostSpec
	Links  []LinkSpec
	Names  []NameSpec // lines of every host's /etc/hosts
	// Congestion is the congestion control of TCP on all hosts, such as "cubic"; empty means the machine's.
	Congestion string
}

// HostSpec is one host.
type HostSpec struct {
	Name        string
	Router      bool // forwards packets
	Routes      []Route
	Masquerade  string       // a device with source NAT, or empty
	Nameservers []netip.Addr // in its /etc/resolv.conf
}

// Route is one route of a host.
type Route struct {
	To     netip.Prefix
	Via    netip.Addr // the gateway; zero if To is on the link
	Device string
	Metric int // the lowest wins; 0 is the kernel's choice
}

// NameSpec gives a name to an address.
type NameSpec struct {
	Name string
	Addr netip.Addr
}

// LinkSpec joins two hosts. It is emulated if AtoB or BtoA shapes anything; otherwise it is a veth pair.
type LinkSpec struct {
	Name       string
	A, B       End
	MTU        int // largest IP packet in bytes; 0 means 1500
	AtoB, BtoA Shape
}

// End is one end of a link.
type End struct {
	Host   string
	Device string
	Addrs  []netip.Prefix
}

// Emulated reports whether the link needs the emulator.
func (l LinkSpec) Emulated() bool { return l.AtoB != Shape{} || l.BtoA != Shape{} }

func (l LinkSpec) mtu() int {
	if l.MTU == 0 {
		return 1500
	}
	return l.MTU
}

var (
	nameRule   = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,39}$`)
	deviceRule = regexp.MustCompile(`^[a-z][a-z0-9-]{0,14}$`)
)

// Validate returns an error if the world is invalid.
func (w World) Validate() error {
	if !nameRule.MatchString(w.Name) {
		return w.wrong("%q is no name for a world", w.Name)
	}
	hosts := map[string]bool{}
	for _, h := range w.Hosts {
		if !nameRule.MatchString(h.Name) {
			return w.wrong("%q is no name for a host", h.Name)
		}
		if hosts[h.Name] {
			return w.wrong("two hosts are called %s", h.Name)
		}
		hosts[h.Name] = true
	}
	if w.Client != "" && !hosts[w.Client] {
		return w.wrong("its client %q is no host of it", w.Client)
	}
	devices, err := w.validateLinks(hosts)
	if err != nil {
		return err
	}
	for _, h := range w.Hosts {
		if h.Masquerade != "" && !devices[h.Name+"/"+h.Masquerade] {
			return w.wrong("host %s masquerades behind %q, which is no device of it", h.Name, h.Masquerade)
		}
		for _, r := range h.Routes {
			if !devices[h.Name+"/"+r.Device] {
				return w.wrong("host %s has a route over %q, which is no device of it", h.Name, r.Device)
			}
			if !r.To.IsValid() || (r.Via.IsValid() && r.Via.Is4() != r.To.Addr().Is4()) {
				return w.wrong("host %s: route %s via %s mixes families or has no destination", h.Name, r.To, r.Via)
			}
		}
	}
	return nil
}

func (w World) validateLinks(hosts map[string]bool) (devices map[string]bool, err error) {
	links := map[string]bool{}
	devices = map[string]bool{}
	for _, l := range w.Links {
		if !nameRule.MatchString(l.Name) || links[l.Name] {
			return nil, w.wrong("%q is no name for a link, or is taken", l.Name)
		}
		links[l.Name] = true
		if l.mtu() < 576 || l.mtu() > maxPacket {
			return nil, w.wrong("link %s: MTU %d is not in 576 to %d", l.Name, l.MTU, maxPacket)
		}
		for _, s := range []Shape{l.AtoB, l.BtoA} {
			if err := s.Validate(); err != nil {
				return nil, w.wrong("link %s: %v", l.Name, err)
			}
		}
		for _, e := range []End{l.A, l.B} {
			if !hosts[e.Host] {
				return nil, w.wrong("link %s: no host %q", l.Name, e.Host)
			}
			if !deviceRule.MatchString(e.Device) || e.Device == "lo" || devices[e.Host+"/"+e.Device] {
				return nil, w.wrong("link %s: %q is no name for a device, or is taken on %s", l.Name, e.Device, e.Host)
			}
			devices[e.Host+"/"+e.Device] = true
		}
	}
	return devices, nil
}

func (w World) wrong(format string, args ...any) error {
	return &path.Error{What: "world " + w.Name, Why: fmt.Sprintf(format, args...)}
}
