// Package bpf loads BPF programs and attaches them to devices (tc). The kernel keeps a filter and its clsact after a crash,
// so they are changes for a [journal.Journal]. It detaches a program of [AttachFirst] when the process ends.
package bpf

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"heddle/internal/journal"
)

// Hook is the direction of the packets that a program sees.
type Hook string

const (
	Out Hook = "egress"
	In  Hook = "ingress"
)

// Parent returns netlink's number of the hook.
func (h Hook) Parent() uint32 {
	if h == In {
		return netlink.HANDLE_MIN_INGRESS
	}
	return netlink.HANDLE_MIN_EGRESS
}

// Filter attaches a program to a device with tc(8), as the first of its hook.
type Filter struct {
	Device string `json:"device"`
	Index  int    `json:"index"`
	Hook   Hook   `json:"hook"`
	Name   string `json:"name"`

	Program *ebpf.Program `json:"-"` // needed by Apply
}

func (f *Filter) String() string {
	return fmt.Sprintf("tc filter add dev %s %s bpf direct-action name %s", f.Device, f.Hook, f.Name)
}

const firstPriority = 100 // leaves room for filters before it

// Apply attaches the program before the existing filters.
func (f *Filter) Apply() error {
	device, err := netlink.LinkByIndex(f.Index)
	if err != nil {
		return err
	}
	others, err := netlink.FilterList(device, f.Hook.Parent())
	if err != nil {
		return err
	}
	priority := uint16(firstPriority)
	for _, o := range others {
		priority = min(priority, o.Attrs().Priority-1)
	}
	if priority == 0 {
		return fmt.Errorf("another filter is first on %s, and could let packets out unseen", f.Device)
	}
	return netlink.FilterAdd(&netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{LinkIndex: f.Index, Parent: f.Hook.Parent(), Protocol: unix.ETH_P_ALL, Priority: priority},
		Fd:          f.Program.FD(), Name: f.Name, DirectAction: true,
	})
}

// Replace puts the program in the place of that of the filter with the name, so that no packet passes between the two. Without such a
// filter it is Apply, to a device that gets a clsact if it has none.
func (f *Filter) Replace() error {
	if has, err := HasClsact(f.Index); err != nil {
		return err
	} else if !has {
		if err := (&Clsact{Device: f.Device, Index: f.Index}).Apply(); err != nil && !errors.Is(err, unix.EEXIST) {
			return err
		}
	}
	n, err := f.each(func(before netlink.Filter) error {
		at := *before.Attrs()
		return netlink.FilterReplace(&netlink.BpfFilter{FilterAttrs: at, Fd: f.Program.FD(), Name: f.Name, DirectAction: true})
	})
	if err != nil || n > 0 {
		return err
	}
	return f.Apply()
}

// Undo removes the filters with the name from the device with the index.
func (f *Filter) Undo() error {
	_, err := f.each(netlink.FilterDel)
	return err
}

func (f *Filter) Attached() bool {
	n, err := f.each(func(netlink.Filter) error { return nil })
	return err == nil && n > 0
}

func (f *Filter) each(do func(netlink.Filter) error) (n int, err error) {
	device, err := netlink.LinkByIndex(f.Index)
	if err != nil {
		return 0, journal.IgnoreGone(err)
	}
	filters, err := netlink.FilterList(device, f.Hook.Parent())
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

// Clsact is the qdisc of a device that filters attach to.
type Clsact struct {
	Device string `json:"device"`
	Index  int    `json:"index"`
}

func (q *Clsact) String() string { return "tc qdisc add dev " + q.Device + " clsact" }

func (q *Clsact) netlink() *netlink.Clsact {
	return &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: q.Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}}
}

func (q *Clsact) Apply() error { return netlink.QdiscAdd(q.netlink()) }

// Undo removes the qdisc unless it still has a filter.
func (q *Clsact) Undo() error {
	device, err := netlink.LinkByIndex(q.Index)
	if err != nil {
		return journal.IgnoreGone(err)
	}
	for _, h := range []Hook{In, Out} {
		if filters, err := netlink.FilterList(device, h.Parent()); err == nil && len(filters) > 0 {
			return nil
		}
	}
	if err := netlink.QdiscDel(q.netlink()); !errors.Is(err, unix.EINVAL) {
		return journal.IgnoreGone(err)
	}
	return nil
}

// HasClsact reports whether a device has the qdisc.
func HasClsact(index int) (bool, error) {
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

// AttachFirst attaches a program by tcx (Linux 6.6), before all programs of tcx and tc: one that ends the chain would hide
// packets from it. The link ends with the process; a [Filter] stays. Without tcx, AttachFirst returns nil.
func AttachFirst(index int, p *ebpf.Program) (link.Link, error) {
	l, err := link.AttachTCX(link.TCXOptions{Interface: index, Program: p, Attach: ebpf.AttachTCXEgress, Anchor: link.Head()})
	if errors.Is(err, ebpf.ErrNotSupported) {
		return nil, nil
	}
	return l, err
}
