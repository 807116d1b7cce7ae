package bpfswitch

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"heddle/internal/bpf"
	"heddle/internal/errhint"
	"heddle/pseudonym/gateway/lead"
)

// LeadDirect leads the packets of a connection between client and gateway to its tenant from then on, as they are: only the Ethernet address changes. The tenant
// has the connection with the gateway's address, and answers the client past this machine.
func (s *Switch) LeadDirect(client, gateway, tenant netip.AddrPort) error {
	if err := lead.Check(client, gateway, tenant); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.follow(); err != nil {
		return err
	}
	device, err := s.hops.between(client.Addr(), tenant.Addr())
	if err != nil {
		return err
	}
	k := keyOf(client, gateway)
	if err := bpf.Delete(s.to, &k); err != nil {
		return err
	}
	return full(s.direct, bpf.Put(s.direct, &k, &leadDirect{Last: bpf.Monotonic(), Address: words(tenant.Addr()), Device: uint32(device)}))
}

// touchDirect is [Switch.Touch] of an entry that leads directly. s.mu is held.
func (s *Switch) touchDirect(k leadKey, tenant netip.AddrPort, unless time.Duration) (bool, error) {
	var d leadDirect
	if err := s.direct.Lookup(&k, &d); err != nil || d.Address != words(tenant.Addr()) {
		return false, gone(err)
	}
	now := bpf.Monotonic()
	if d.Last+uint64(unless) > now {
		return true, nil
	}
	d.Last = now
	err := s.direct.Update(&k, &d, ebpf.UpdateExist)
	return err == nil, gone(err)
}

// CheckDirect reports why this machine could not lead packets to a tenant that answers directly, or nil.
func CheckDirect(tenant netip.Addr) error {
	h, err := newHops()
	if err != nil {
		return err
	}
	defer h.kernel.Close()
	_, err = h.neighbour(tenant)
	return err
}

// hops knows how packets leave this machine. It is not safe for concurrent use.
type hops struct {
	kernel  *netlink.Handle      // of the network namespace in which it was made
	devices map[int]netlink.Link // that the kernel told of since forget
}

func newHops() (*hops, error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	return &hops{h, map[int]netlink.Link{}}, nil
}

// forget is called when devices may have changed.
func (h *hops) forget() { clear(h.devices) }

// between returns the device at which the tenant is a neighbour, if the client's packets can pass to it as they are. Nobody would tell the client that they
// are too large for that device.
func (h *hops) between(client, tenant netip.Addr) (device int, err error) {
	to, err := h.neighbour(tenant)
	if err != nil {
		return 0, err
	}
	from, _, err := h.leave(client)
	if err != nil {
		return 0, err
	}
	switch a, b := from.Attrs(), to.Attrs(); {
	case !ethernet(from):
		return 0, notDirect(tenant, "clients' packets arrive at "+a.Name+", which is no Ethernet device", "")
	case b.MTU < a.MTU:
		return 0, notDirect(tenant, fmt.Sprintf("packets of clients may have %d bytes, and %s takes %d", a.MTU, b.Name, b.MTU),
			fmt.Sprintf("ip link set %s mtu %d", b.Name, a.MTU))
	}
	return to.Attrs().Index, nil
}

// neighbour returns the Ethernet device at which a tenant's machine is a neighbour: a router would send the packets back, which have this machine's address.
func (h *hops) neighbour(tenant netip.Addr) (netlink.Link, error) {
	device, router, err := h.leave(tenant)
	switch {
	case err != nil:
		return nil, err
	case router:
		return nil, notDirect(tenant, "a router is between this machine and it", "let both be in one network")
	case !ethernet(device):
		return nil, notDirect(tenant, device.Attrs().Name+" is no Ethernet device", "")
	}
	return device, nil
}

func ethernet(device netlink.Link) bool {
	header, known := bpf.HeaderOf(device)
	return known && header == bpf.EthernetHeader
}

// leave returns the device by which packets to an address leave, and whether a router is the next to have them.
func (h *hops) leave(to netip.Addr) (device netlink.Link, router bool, err error) {
	routes, err := h.kernel.RouteGet(to.AsSlice())
	if err != nil {
		return nil, false, fmt.Errorf("no route to %v: %w", to, err)
	}
	if len(routes) == 0 || routes[0].Type != unix.RTN_UNICAST {
		return nil, false, fmt.Errorf("%v is no other machine", to)
	}
	r := routes[0]
	if device = h.devices[r.LinkIndex]; device == nil {
		if device, err = h.kernel.LinkByIndex(r.LinkIndex); err != nil {
			return nil, false, err
		}
		h.devices[r.LinkIndex] = device
	}
	return device, r.Gw != nil || r.Via != nil, nil
}

func notDirect(tenant netip.Addr, why, hint string) error {
	const other = "name the agent as handoff:ADDRESS, whose answers pass the gateway's machine"
	if hint != "" {
		hint += "; or "
	}
	return &errhint.Error{What: "a site at " + tenant.String() + " cannot answer directly", Why: why, Hint: hint + other}
}
