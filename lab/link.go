package lab

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
)

// Link is one link of a world that is up.
type Link struct {
	spec     LinkSpec
	in       *Instance
	emulator *emulator // nil for veth, and where another process owns the world
}

// ErrNotEmulated is returned where something is asked of a link that only an emulated link of this process can do.
var ErrNotEmulated = errors.New("the link is not emulated by this process")

// A Change is something done to a link while it runs.
type Change func(*Link) error

// Set applies the changes in order, and stops at the first that fails.
func (l *Link) Set(changes ...Change) error {
	for _, c := range changes {
		if err := c(l); err != nil {
			return fmt.Errorf("world %s, link %s: %w", l.in.state.Name, l.spec.Name, err)
		}
	}
	return nil
}

// Unplug sets both devices down, as when a cable is pulled: routes over them go.
func Unplug() Change {
	return func(l *Link) error {
		return l.bothEnds(func(h *Host, e End) error { return h.setUp(e.Device, false) })
	}
}

// up brings both devices up again, with their addresses and routes.
func (l *Link) up() error {
	if err := l.configure(); err != nil {
		return err
	}
	return l.bothEnds(func(h *Host, e End) error {
		return h.route(func(r Route) bool { return r.Device == e.Device })
	})
}

// Restore sets both devices up again, with their addresses and routes, and mends a cut.
func Restore() Change {
	return func(l *Link) error {
		if l.emulator != nil {
			if err := l.Set(l.cut(false)); err != nil {
				return err
			}
		}
		return l.up()
	}
}

// Cut loses every packet without a sign: both devices stay up, as when a network dies further away.
func Cut() Change { return func(l *Link) error { return l.cut(true)(l) } }

func (l *Link) cut(on bool) Change {
	return each(func(q *queue) { q.cut = on })
}

// Reshape sets the shape of both directions. Packets already under way keep their time.
func Reshape(ab, ba Shape) Change {
	return func(l *Link) error {
		if l.emulator == nil {
			return ErrNotEmulated
		}
		if err := errors.Join(ab.Validate(), ba.Validate()); err != nil {
			return err
		}
		l.emulator.change(0, func(q *queue) { q.shape = ab })
		l.emulator.change(1, func(q *queue) { q.shape = ba })
		return nil
	}
}

// Loss sets the probability of loss in both directions.
func Loss(p float64) Change {
	if !(p >= 0 && p <= 1) {
		return func(*Link) error { return fmt.Errorf("loss %v is not in 0 to 1", p) }
	}
	return each(func(q *queue) { q.shape.Loss = p })
}

// Delay sets the one-way delay of both directions.
func Delay(d time.Duration) Change {
	if err := (Shape{Delay: d}).Validate(); err != nil {
		return func(*Link) error { return err }
	}
	return each(func(q *queue) { q.shape.Delay, q.shape.Jitter = d, min(q.shape.Jitter, d) })
}

func each(f func(*queue)) Change {
	return func(l *Link) error {
		if l.emulator == nil {
			return ErrNotEmulated
		}
		l.emulator.change(0, f)
		l.emulator.change(1, f)
		return nil
	}
}

// Readdress gives the device of one host other addresses, as DHCP or roaming does, and sets the routes over it again: setting
// an address away takes the routes along.
func Readdress(host string, addrs ...netip.Prefix) Change {
	return func(l *Link) error {
		for _, end := range []*End{&l.spec.A, &l.spec.B} {
			if end.Host == host {
				end.Addrs = addrs
				return l.up()
			}
		}
		return fmt.Errorf("host %s is at neither end", host)
	}
}

// Counters counts what an emulated link of this process carried; zero for others.
func (l *Link) Counters() (ab, ba Counters) {
	if l.emulator == nil {
		return Counters{}, Counters{}
	}
	return l.emulator.counters()
}

// Lateness says how late the emulator was on this link so far.
func (l *Link) Lateness() Lateness {
	if l.emulator == nil {
		return Lateness{}
	}
	late := l.emulator.lateness()
	return late.summary()
}

// Spec is the link as it is now.
func (l *Link) Spec() LinkSpec { return l.spec }

func (l *Link) bothEnds(f func(*Host, End) error) error {
	for _, e := range []End{l.spec.A, l.spec.B} {
		if err := f(l.in.Host(e.Host), e); err != nil {
			return err
		}
	}
	return nil
}

// create makes the devices.
func (l *Link) create(seed, index uint64) error {
	a, b := l.in.Host(l.spec.A.Host), l.in.Host(l.spec.B.Host)
	if !l.spec.Emulated() {
		return a.ns.link.LinkAdd(&netlink.Veth{
			LinkAttrs:     netlink.LinkAttrs{Name: l.spec.A.Device, MTU: l.spec.mtu(), TxQLen: 1000},
			PeerName:      l.spec.B.Device,
			PeerMTU:       uint32(l.spec.mtu()),
			PeerTxQLen:    1000,
			PeerNamespace: netlink.NsFd(b.ns.handle),
		})
	}
	var ends [2]int
	for i, e := range []End{l.spec.A, l.spec.B} {
		err := l.in.Host(e.Host).Do(func() (err error) {
			ends[i], err = openTUN(e.Device)
			return err
		})
		if err != nil {
			return err
		}
	}
	var err error
	l.emulator, err = newEmulator(ends[0], ends[1], l.spec, seed, index)
	return err
}

// configure sets MTU and addresses and brings both ends up. It may be called again.
func (l *Link) configure() error {
	return l.bothEnds(func(h *Host, e End) error {
		device, err := h.device(e.Device)
		if err != nil {
			return err
		}
		if err := h.ns.link.LinkSetMTU(device, l.spec.mtu()); err != nil {
			return fmt.Errorf("host %s: MTU of %s: %w", e.Host, e.Device, err)
		}
		if err := h.setUp(e.Device, true); err != nil {
			return err
		}
		return h.address(e.Device, e.Addrs)
	})
}
