package ovsswitch

import (
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// hop is the next machine on a way.
type hop struct {
	device int
	at     netip.Addr
}

// hops knows the next hops of this machine, and their Ethernet addresses. It is safe for concurrent use.
type hops struct {
	kernel *netlink.Handle // of the network namespace in which it was made

	mu   sync.Mutex
	macs map[hop]net.HardwareAddr
}

func newHops() (*hops, error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	return &hops{kernel: h, macs: map[hop]net.HardwareAddr{}}, nil
}

// find returns the next hop of this machine's packets to an address, whose Ethernet address is known then.
func (h *hops) find(to netip.Addr) (hop, error) {
	next, err := h.route(to)
	if err != nil {
		return next, err
	}
	return next, h.resolve(next)
}

// learn notes an Ethernet address of a hop, unless one is known.
func (h *hops) learn(of hop, mac net.HardwareAddr) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.macs[of] == nil && len(mac) == 6 {
		h.macs[of] = mac
	}
}

// route returns the next hop of this machine's packets to an address.
func (h *hops) route(to netip.Addr) (next hop, err error) {
	routes, err := h.kernel.RouteGet(to.AsSlice())
	if err != nil {
		return hop{}, fmt.Errorf("no route to %v: %w", to, err)
	}
	if len(routes) == 0 || routes[0].Type != unix.RTN_UNICAST {
		return hop{}, fmt.Errorf("%v is no other machine", to)
	}
	next = hop{routes[0].LinkIndex, to}
	if gateway, ok := netip.AddrFromSlice(routes[0].Gw); ok {
		next.at = gateway.Unmap()
	}
	return next, nil
}

// Times of resolve.
const (
	resolveFor = time.Second
	resolveIn  = 5 * time.Millisecond
)

// resolve waits until the Ethernet address of a hop is known.
func (h *hops) resolve(of hop) error {
	for end := time.Now().Add(resolveFor); h.mac(of) == nil; time.Sleep(resolveIn) {
		if _, err := h.look(map[int]bool{of.device: true}); err != nil || h.mac(of) != nil {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("%v does not tell its Ethernet address", of.at)
		}
		// The kernel asks for the address as if it had a packet to send.
		if err := h.kernel.NeighSet(&netlink.Neigh{LinkIndex: of.device, IP: of.at.AsSlice(), Flags: netlink.NTF_USE, State: netlink.NUD_NONE}); err != nil {
			return err
		}
	}
	return nil
}

// mac returns the Ethernet address of a hop, or nil.
func (h *hops) mac(of hop) net.HardwareAddr {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.macs[of]
}

// again asks the kernel for the Ethernet addresses of all hops, and returns those whose address has changed. An address that the kernel no
// longer knows stays: it forgets those that it does not use itself.
func (h *hops) again() (changed map[hop]bool, err error) {
	devices := map[int]bool{}
	h.mu.Lock()
	for of := range h.macs {
		devices[of.device] = true
	}
	h.mu.Unlock()
	return h.look(devices)
}

func (h *hops) look(devices map[int]bool) (changed map[hop]bool, err error) {
	changed = map[hop]bool{}
	for device := range devices {
		neighbours, err := h.kernel.NeighList(device, unix.AF_UNSPEC)
		if err != nil {
			return nil, err
		}
		h.mu.Lock()
		for _, n := range neighbours {
			at, ok := netip.AddrFromSlice(n.IP)
			if !ok || len(n.HardwareAddr) != 6 || n.State&unix.NUD_FAILED != 0 {
				continue
			}
			of := hop{device, at.Unmap()}
			if was := h.macs[of]; was != nil && was.String() != n.HardwareAddr.String() {
				changed[of] = true
			}
			h.macs[of] = n.HardwareAddr
		}
		h.mu.Unlock()
	}
	return changed, nil
}

func (h *hops) close() { h.kernel.Close() }
