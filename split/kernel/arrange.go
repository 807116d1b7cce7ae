package kernel

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"

	"heddle/internal/bpf"
	"heddle/internal/iprule"
	"heddle/internal/journal"
	"heddle/internal/sysctl"
	"heddle/path"
	"heddle/split/backend"
)

// arrange attaches the programs to all members' devices, sets the hops, and lets the guard pass only those devices.
func (p *Backend) arrange() error {
	hops := p.members.Hops()
	for _, h := range hops {
		if h.Index == 0 {
			continue
		}
		if err := p.attach(h.Index, h.Device, h.Header, true); err != nil {
			return err
		}
		if p.members.Server.Addr().Is4() {
			if err := p.loosen(h.Device); err != nil {
				return err
			}
		}
	}
	if err := p.attachExit(); err != nil {
		return err
	}
	for i, h := range hops {
		if p.tables != nil {
			if err := p.routeMember(i, h); err != nil {
				return err
			}
		}
		h.MTU = p.members.MTU()
		p.session.maps.setHop(i, h)
	}
	return p.permitDevices()
}

// makeTables gives each member a routing table for packets with its mark. Otherwise, for IPv6, bpf_redirect_neigh takes the
// neighbour from the machine's best route, whatever the device.
func (p *Backend) makeTables() error {
	n := len(p.o.Via)
	numbers, err := iprule.FreeTables(iprule.Sessions, n)
	if err != nil {
		return err
	}
	first, _, err := iprule.FreePriorities(true, n)
	if err != nil {
		return err
	}
	for i, number := range numbers {
		t := &backend.Table{V6: true, Number: number}
		if err := p.journal.Do(t); err != nil {
			return err
		}
		if err := p.journal.Do(&backend.Rule{V6: true, Priority: first + i, Mark: p.session.mark | uint32(i), Table: number}); err != nil {
			return err
		}
		p.tables = append(p.tables, t)
	}
	p.routed = make([]backend.Hop, n)
	return nil
}

func (p *Backend) routeMember(i int, h backend.Hop) (err error) {
	if h == p.routed[i] {
		return nil
	}
	if h.Index == 0 {
		err = p.tables[i].Clear()
	} else {
		err = p.tables[i].Replace(h, p.members.Server.Addr())
	}
	if err == nil {
		p.routed[i] = h
	}
	return err
}

// attachExit attaches the program to the device of the machine's own route to the server, where all packets start.
func (p *Backend) attachExit() error {
	index, err := backend.ExitOf(p.members.Server.Addr())
	if err != nil || index == 0 || p.devices[index] != nil {
		return err
	}
	l, err := netlink.LinkByIndex(index)
	if err != nil {
		return journal.IgnoreGone(err)
	}
	header, known := bpf.HeaderOf(l)
	if !known {
		p.members.Warn("packets to the server would leave by %s, a device of the kind %s that this backend does not know: they are dropped", l.Attrs().Name, l.Attrs().EncapType)
		return nil
	}
	return p.attach(index, l.Attrs().Name, header, false)
}

// attach attaches the programs to a device, once.
func (p *Backend) attach(index int, name string, header int, answers bool) error {
	d := p.devices[index]
	if d == nil {
		d = &device{}
		if has, err := bpf.HasClsact(index); err != nil {
			return refused(err)
		} else if !has {
			if err := p.journal.Do(&bpf.Clsact{Device: name, Index: index}); err != nil {
				return refused(err)
			}
		}
		program, err := p.program(header, bpf.Out)
		if err != nil {
			return refused(err)
		}
		if err := p.attachHook(d, index, name, bpf.Out, program); err != nil {
			return err
		}
		if d.first, err = bpf.AttachFirst(index, program); err != nil {
			return refused(err)
		}
		p.devices[index] = d
	}
	if answers && len(d.filters) < 2 {
		program, err := p.program(header, bpf.In)
		if err != nil {
			return refused(err)
		}
		return p.attachHook(d, index, name, bpf.In, program)
	}
	return nil
}

func (p *Backend) attachHook(d *device, index int, name string, h bpf.Hook, program *ebpf.Program) error {
	f := &bpf.Filter{Device: name, Index: index, Hook: h, Name: p.filterName(), Program: program}
	if err := p.journal.Do(f); err != nil {
		return refused(err)
	}
	d.filters = append(d.filters, f)
	return nil
}

// loosen accepts answers by another device than that of the best route to the server.
func (p *Backend) loosen(device string) error {
	change, err := sysctl.LooseFilter(device)
	if err != nil || change == nil {
		return err
	}
	if err := p.journal.Do(change); err != nil {
		return &path.Error{What: "backend kernel", Why: "answers on " + device + " would be refused by strict reverse path filtering",
			Hint: fmt.Sprintf("sysctl net.ipv4.conf.%s.rp_filter=2", device), Err: err}
	}
	return nil
}

// permitDevices lets the guard pass the devices that have the program.
func (p *Backend) permitDevices() error {
	var exits []backend.Exit
	for index := range p.devices {
		exits = append(exits, backend.Exit{Index: index})
	}
	slices.SortFunc(exits, func(a, b backend.Exit) int { return cmp.Compare(a.Index, b.Index) })
	if p.guarded && slices.Equal(exits, p.guard.Exits) {
		return nil
	}
	p.guard.Exits = exits
	return p.applyGuard()
}

// applyGuard replaces the table, which resets its counters.
func (p *Backend) applyGuard() error {
	p.countRefused()
	p.mu.Lock()
	p.refused, p.stray = p.refused+p.stray, 0
	p.mu.Unlock()
	err := p.guard.Apply()
	p.guarded = err == nil
	return err
}

// verify restores what somebody removed, and forgets removed devices, whose index may be reused.
func (p *Backend) verify() error {
	for index, d := range p.devices {
		l, err := netlink.LinkByIndex(index)
		if journal.IgnoreGone(err) != nil {
			return err
		}
		whole := err == nil
		for _, f := range d.filters {
			whole = whole && f.Attached()
		}
		if whole {
			continue
		}
		delete(p.devices, index)
		if err := d.release(); err != nil {
			return err
		}
		if err := p.permitDevices(); err != nil {
			return err
		}
		if l != nil {
			p.members.Warn("somebody took the program off %s; it is attached again", l.Attrs().Name)
			for _, f := range d.filters {
				if err := f.Undo(); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
