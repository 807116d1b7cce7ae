package kernel

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"heddle/internal/journal"
)

// hook is where a program looks at the packets of a device.
type hook string

const (
	out hook = "egress"
	in  hook = "ingress"
)

func (h hook) parent() uint32 {
	if h == in {
		return netlink.HANDLE_MIN_INGRESS
	}
	return netlink.HANDLE_MIN_EGRESS
}

// filter attaches a program to a device by tc(8), as the first of its hook. It stays after a crash: the kernel keeps the
// program and its maps, and the program drops once nobody renews its permission.
type filter struct {
	Device string `json:"device"`
	Index  int    `json:"index"`
	Hook   hook   `json:"hook"`
	Name   string `json:"name"`

	program *ebpf.Program
}

// String says what is attached.
func (f *filter) String() string {
	return fmt.Sprintf("tc filter add dev %s %s bpf direct-action name %s", f.Device, f.Hook, f.Name)
}

// firstPriority leaves room for others before it.
const firstPriority = 100

// Apply attaches the program, in front of what is there.
func (f *filter) Apply() error {
	device, err := netlink.LinkByIndex(f.Index)
	if err != nil {
		return err
	}
	others, err := netlink.FilterList(device, f.Hook.parent())
	if err != nil {
		return err
	}
	priority := uint16(firstPriority)
	for _, o := range others {
		if before := o.Attrs().Priority - 1; before < priority {
			priority = before
		}
	}
	if priority == 0 {
		return fmt.Errorf("another filter is first on %s, and could let packets out unseen", f.Device)
	}
	return netlink.FilterAdd(&netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{LinkIndex: f.Index, Parent: f.Hook.parent(), Protocol: unix.ETH_P_ALL, Priority: priority},
		Fd:          f.program.FD(), Name: f.Name, DirectAction: true,
	})
}

// Undo takes away the filters of that name, on the device of that number.
func (f *filter) Undo() error {
	_, err := f.each(netlink.FilterDel)
	return err
}

// there reports whether it is still attached.
func (f *filter) there() bool {
	n, err := f.each(func(netlink.Filter) error { return nil })
	return err == nil && n > 0
}

func (f *filter) each(do func(netlink.Filter) error) (n int, err error) {
	device, err := netlink.LinkByIndex(f.Index)
	if err != nil {
		if journal.Gone(err) {
			return 0, nil
		}
		return 0, err
	}
	filters, err := netlink.FilterList(device, f.Hook.parent())
	if err != nil {
		if journal.Gone(err) || errors.Is(err, unix.EINVAL) { // no qdisc
			return 0, nil
		}
		return 0, err
	}
	for _, o := range filters {
		if b, ok := o.(*netlink.BpfFilter); ok && b.Name == f.Name {
			n++
			err = errors.Join(err, do(o))
		}
	}
	return n, err
}

// qdisc gives a device the place where filters are attached (clsact).
type qdisc struct {
	Device string `json:"device"`
	Index  int    `json:"index"`
}

// String says what is made.
func (q *qdisc) String() string { return "tc qdisc add dev " + q.Device + " clsact" }

func (q *qdisc) netlink() *netlink.Clsact {
	return &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: q.Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}}
}

// Apply makes it.
func (q *qdisc) Apply() error { return netlink.QdiscAdd(q.netlink()) }

// Undo removes it where no filter is left on it.
func (q *qdisc) Undo() error {
	device, err := netlink.LinkByIndex(q.Index)
	if err != nil {
		if journal.Gone(err) {
			return nil
		}
		return err
	}
	for _, h := range []hook{in, out} {
		if filters, err := netlink.FilterList(device, h.parent()); err == nil && len(filters) > 0 {
			return nil
		}
	}
	if err := netlink.QdiscDel(q.netlink()); err != nil && !journal.Gone(err) && !errors.Is(err, unix.EINVAL) {
		return err
	}
	return nil
}

// hasQdisc reports whether a device has it already.
func hasQdisc(index int) (bool, error) {
	device, err := netlink.LinkByIndex(index)
	if err != nil {
		return false, err
	}
	list, err := netlink.QdiscList(device)
	for _, q := range list {
		if q.Attrs().Parent == netlink.HANDLE_CLSACT {
			return true, err
		}
	}
	return false, err
}

// attachFirst attaches a program by tcx (Linux 6.6), before all that is attached by tcx or tc: a program of others that
// ends the look-up there would otherwise keep ours from seeing the packet. It is gone with this process, and the filter
// of the same program remains. It is nil on kernels without tcx.
func attachFirst(index int, p *ebpf.Program) (link.Link, error) {
	l, err := link.AttachTCX(link.TCXOptions{Interface: index, Program: p, Attach: ebpf.AttachTCXEgress, Anchor: link.Head()})
	if errors.Is(err, ebpf.ErrNotSupported) {
		return nil, nil
	}
	return l, err
}

// segmenter is a pair of devices that takes runs of segments apart: the kernel does so before the first one, since it
// takes no runs, and the program on the second one sees packets.
type segmenter struct {
	First  string `json:"first"`
	Second string `json:"second"`
}

// String says what is made.
func (s *segmenter) String() string {
	return fmt.Sprintf("ip link add %s gso_max_segs 1 type veth peer name %s", s.First, s.Second)
}

// segmenterMTU is larger than any path's, so that no datagram is too large for it.
const segmenterMTU = 65535

// Apply makes the pair and switches it on.
func (s *segmenter) Apply() error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU, attrs.TxQLen = s.First, segmenterMTU, 0
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: s.Second, PeerMTU: segmenterMTU}); err != nil {
		return err
	}
	first, err := netlink.LinkByName(s.First)
	if err != nil {
		return err
	}
	if err := netlink.LinkSetGSOMaxSegs(first, 1); err != nil {
		return err
	}
	second, err := netlink.LinkByName(s.Second)
	if err != nil {
		return err
	}
	return errors.Join(netlink.LinkSetUp(second), netlink.LinkSetUp(first))
}

// Undo removes the pair.
func (s *segmenter) Undo() error {
	first, err := netlink.LinkByName(s.First)
	if err == nil {
		err = netlink.LinkDel(first)
	}
	if err != nil && !journal.Gone(err) {
		return err
	}
	return nil
}

// index is the number of a device of the pair.
func (s *segmenter) index(name string) (int, error) {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return 0, err
	}
	return l.Attrs().Index, nil
}
