package v6switch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"heddle/internal/bpf"
	"heddle/internal/errhint"
	"heddle/internal/sysctl"
	"heddle/path"
	"heddle/pseudonym/address"
)

// Filter is the name of the program at its device (tc). It stays when the process ends, and leads by what it knows.
const Filter = "heddle_v6"

// Switch is safe for concurrent use.
type Switch struct {
	o       Options
	program *ebpf.Program
	maps    map[string]*ebpf.Map
	mapped  []byte
	counts  *leadCounts

	routes *netlink.Handle // of the namespace in which it was made
	watch  *path.Watch

	mu      sync.Mutex
	tenants map[uint16]netip.Addr
	hops    map[uint16]hop // that the program has
}

// hop is how packets to a tenant leave, struct tenant of switch.c.
type hop struct {
	Index uint32
	Next  [16]byte
}

// loopback is the index of lo, by which packets to this machine leave.
const loopback = 1

// New loads the program. It leads nothing before [Switch.Attach].
func New(o Options) (*Switch, error) {
	if !address.ValidPrefix(o.Prefix) {
		return nil, &errhint.Error{What: "the prefix " + o.Prefix.String() + " of pseudo-addresses", Why: "it is not an IPv6 prefix of /64", Hint: "such as 2001:db8:77:1::/64"}
	}
	if len(o.Ports) == 0 || len(o.Ports) > MostPorts {
		return nil, &errhint.Error{What: "the switch", Why: fmt.Sprintf("it leads 1 to %d ports", MostPorts), Hint: "list fewer in listen"}
	}
	s := &Switch{o: o, maps: map[string]*ebpf.Map{}, hops: map[uint16]hop{}}
	var err error
	if s.routes, err = netlink.NewHandle(unix.NETLINK_ROUTE); err == nil {
		s.watch, err = path.NewWatch()
	}
	if err == nil {
		err = s.load()
	}
	if err != nil {
		return nil, errors.Join(refused(err), s.Close())
	}
	return s, nil
}

func (s *Switch) load() error {
	object, err := loadLead()
	if err != nil {
		return err
	}
	for _, name := range []string{leadMapHeddleCounts, leadMapHeddleKeys, leadMapHeddleTenants} {
		if s.maps[name], err = ebpf.NewMap(object.Maps[name]); err != nil {
			return err
		}
	}
	counts := s.maps[leadMapHeddleCounts]
	if s.mapped, err = unix.Mmap(counts.FD(), 0, int(counts.ValueSize()), unix.PROT_READ, unix.MAP_SHARED); err != nil {
		return err
	}
	s.counts = (*leadCounts)(unsafe.Pointer(&s.mapped[0]))
	var ports [MostPorts][2]byte
	for i, port := range s.o.Ports {
		binary.BigEndian.PutUint16(ports[i][:], port)
	}
	prefix := s.o.Prefix.Addr().As16()
	s.program, err = bpf.Load(object, leadProgHeddleV6, map[string]any{leadVarPrefix: [8]byte(prefix[:]), leadVarPorts: ports}, s.maps)
	return err
}

func refused(err error) error {
	if errors.Is(err, unix.EPERM) {
		return &errhint.Error{What: "the switch", Why: "this process may not load BPF programs", Hint: errhint.Rights("CAP_BPF and CAP_NET_ADMIN"), Err: err}
	}
	return err
}

// SetKeys replaces the keys by those of a ring. Keys that are in both rings open addresses all the time.
func (s *Switch) SetKeys(r *address.Ring) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	keys, ciphers := s.maps[leadMapHeddleKeys], r.Ciphers()
	for i := len(ciphers) - 1; i >= 0; i-- { // the oldest first: a new key moves all others back by one
		if err := keys.Put(uint32(i), *ciphers[i]); err != nil {
			return err
		}
	}
	for i := len(ciphers); i < address.MaxKeys; i++ {
		if err := keys.Delete(uint32(i)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return err
		}
	}
	return nil
}

// SetTenants replaces the tenants: their addresses, of IPv6, or [Own], by their numbers.
func (s *Switch) SetTenants(all map[uint16]netip.Addr) error {
	for _, at := range all {
		if !at.Is6() || at.Is4In6() {
			return fmt.Errorf("%v is no address of a tenant", at)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tenants = all
	return s.fill()
}

// Follow takes in changes of this machine's routes, if there were any since the last call.
func (s *Switch) Follow() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.watch.Changed() {
		return nil
	}
	return s.fill()
}

// fill tells the program where tenants are.
func (s *Switch) fill() error {
	tenants := s.maps[leadMapHeddleTenants]
	for number, at := range s.tenants {
		now := s.find(at)
		if before, ok := s.hops[number]; ok && before == now {
			continue
		}
		if err := tenants.Put(uint32(number), now); err != nil {
			return err
		}
		s.hops[number] = now
	}
	for number := range s.hops {
		if _, stays := s.tenants[number]; stays {
			continue
		}
		if err := tenants.Delete(uint32(number)); err != nil {
			return err
		}
		delete(s.hops, number)
	}
	return nil
}

// find returns how packets to an address leave, or the zero hop if the machine has no route.
func (s *Switch) find(at netip.Addr) hop {
	if at == Own {
		return hop{Index: loopback}
	}
	routes, err := s.routes.RouteGet(at.AsSlice())
	if err != nil || len(routes) == 0 {
		return hop{}
	}
	if routes[0].Type == unix.RTN_LOCAL {
		return hop{Index: loopback}
	}
	if next, ok := netip.AddrFromSlice(routes[0].Gw); ok {
		at = next
	}
	return hop{uint32(routes[0].LinkIndex), at.As16()}
}

// Attach has the program see what arrives, in the place of the one of an earlier process. Then it gives the prefix to this machine, for the
// addresses that lead to its gateway. Without the program this machine would answer for tenants, so both stay when the process ends.
func (s *Switch) Attach() error {
	device, err := netlink.LinkByName(s.o.Device)
	if _, absent := errors.AsType[netlink.LinkNotFoundError](err); absent {
		return &errhint.Error{What: "the switch", Why: "there is no device " + s.o.Device, Hint: "name the one where clients' packets arrive", Err: err}
	} else if err != nil {
		return err
	}
	if device.Attrs().EncapType != "ether" {
		return &errhint.Error{What: "the switch", Why: s.o.Device + " is no Ethernet device", Hint: "name the device in front of the tunnel, or put the switch behind it"}
	}
	if err := Routes(s.o.Device); err != nil {
		return err
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	// This machine's own messages to tenants, such as that a packet is too large, pass lo once it has the prefix.
	for _, at := range []netlink.Link{device, lo} {
		f := bpf.Filter{Device: at.Attrs().Name, Index: at.Attrs().Index, Hook: bpf.In, Name: Filter, Program: s.program}
		if err := f.Replace(); err != nil {
			return refused(err)
		}
	}
	prefix := net.IPNet{IP: s.o.Prefix.Addr().AsSlice(), Mask: net.CIDRMask(s.o.Prefix.Bits(), 128)}
	return netlink.RouteReplace(&netlink.Route{Dst: &prefix, LinkIndex: lo.Attrs().Index, Type: unix.RTN_LOCAL, Table: unix.RT_TABLE_LOCAL, Scope: netlink.SCOPE_HOST})
}

// Routes reports why a machine does not route packets of IPv6 that arrive on a device, or nil.
func Routes(device string) error {
	file := "/proc/sys/net/ipv6/conf/" + device + "/forwarding"
	if on, err := sysctl.Get(file); err == nil && on == "1" {
		return nil
	}
	return &errhint.Error{What: "the switch", Why: "this machine does not route IPv6 packets to tenants", Hint: "sysctl -w net.ipv6.conf.all.forwarding=1"}
}

// Counts returns what the program counted.
func (s *Switch) Counts() Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.counts
	if c == nil { // it is closed
		return Counts{}
	}
	return Counts{Led: atomic.LoadUint64(&c.Led), Own: atomic.LoadUint64(&c.Own), Unknown: atomic.LoadUint64(&c.Unknown), Refused: atomic.LoadUint64(&c.Refused),
		Unreachable: atomic.LoadUint64(&c.Unreachable)}
}

// Close lets go of the program. If it is attached, it goes on.
func (s *Switch) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	if s.program != nil {
		errs = append(errs, s.program.Close())
	}
	if s.mapped != nil {
		errs = append(errs, unix.Munmap(s.mapped))
		s.mapped, s.counts = nil, nil
	}
	if s.routes != nil {
		s.routes.Close()
	}
	errs = append(errs, s.watch.Close())
	for _, m := range s.maps {
		errs = append(errs, m.Close())
	}
	return errors.Join(errs...)
}
