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
	if err := gone(s.to.Delete(&k)); err != nil {
		return err
	}
	return full(s.direct, s.direct.Put(&k, &leadDirect{Last: bpf.Monotonic(), Address: words(tenant.Addr()), Device: uint32(device)}))
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
	kernel *netlink.Handle // of the network namespace in which it was made
	// Both hold what the kernel said after the last call of forget.
	devices map[int]netlink.Link
	known   map[netip.Addr]hop // to an address
}

// hop is how packets leave.
type hop struct {
	device netlink.Link
	router bool // is the next to have them
	at     time.Time
}

// Limits of what is known: how many addresses, and how long, as the kernel does not tell of all changes.
const (
	mostHops = 4096
	knownFor = 30 * time.Second
)

func newHops() (*hops, error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	return &hops{h, map[int]netlink.Link{}, map[netip.Addr]hop{}}, nil
}

// forget is called when devices may have changed.
func (h *hops) forget() {
	clear(h.devices)
	clear(h.known)
}

// between returns the device at which the tenant is a neighbour, if the client's packets can pass to it as they are. Nobody would tell the client that they
// are too large for that device.
func (h *hops) between(client, tenant netip.Addr) (device int, err error) {
	to, err := h.neighbour(tenant)
	if err != nil {
		return 0, err
	}
	from, err := h.leave(client)
	if err != nil {
		return 0, err
	}
	switch a, b := from.device.Attrs(), to.Attrs(); {
	case !ethernet(from.device):
		return 0, notDirect(tenant, "clients' packets arrive at "+a.Name+", which is no Ethernet device", "")
	case b.MTU < a.MTU:
		return 0, notDirect(tenant, fmt.Sprintf("packets of clients may have %d bytes, and %s takes %d", a.MTU, b.Name, b.MTU),
			fmt.Sprintf("ip link set %s mtu %d", b.Name, a.MTU))
	}
	return to.Attrs().Index, nil
}

// neighbour returns the Ethernet device at which a tenant's machine is a neighbour: a router would send the packets back, which have this machine's address.
func (h *hops) neighbour(tenant netip.Addr) (netlink.Link, error) {
	leaves, err := h.leave(tenant)
	switch {
	case err != nil:
		return nil, err
	case leaves.router:
		return nil, notDirect(tenant, "a router is between this machine and it", "let both be in one network")
	case !ethernet(leaves.device):
		return nil, notDirect(tenant, leaves.device.Attrs().Name+" is no Ethernet device", "")
	}
	return leaves.device, nil
}

func ethernet(device netlink.Link) bool {
	header, known := bpf.HeaderOf(device)
	return known && header == bpf.EthernetHeader
}

// leave returns how packets to an address leave.
func (h *hops) leave(to netip.Addr) (hop, error) {
	if known, ok := h.known[to]; ok && time.Since(known.at) < knownFor {
		return known, nil
	}
	asked := time.Now()
	routes, err := h.kernel.RouteGet(to.AsSlice())
	if err != nil {
		return hop{}, fmt.Errorf("no route to %v: %w", to, err)
	}
	if len(routes) == 0 || routes[0].Type != unix.RTN_UNICAST {
		return hop{}, fmt.Errorf("%v is no other machine", to)
	}
	r := routes[0]
	device := h.devices[r.LinkIndex]
	if device == nil {
		if device, err = h.kernel.LinkByIndex(r.LinkIndex); err != nil {
			return hop{}, err
		}
		h.devices[r.LinkIndex] = device
	}
	if len(h.known) >= mostHops {
		clear(h.known)
	}
	one := hop{device, r.Gw != nil || r.Via != nil, asked}
	h.known[to] = one
	return one, nil
}

func notDirect(tenant netip.Addr, why, hint string) error {
	const other = "name the agent as handoff:ADDRESS, whose answers pass the gateway's machine"
	if hint != "" {
		hint += "; or "
	}
	return &errhint.Error{What: "a site at " + tenant.String() + " cannot answer directly", Why: why, Hint: hint + other}
}
