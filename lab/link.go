package lab

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"github.com/vishvananda/netlink"

	inside "heddle/internal/netns"
)

// Link is one link of a world that is up.
type Link struct {
	spec  LinkSpec
	in    *Instance
	index int // in the engine, or -1 for veth, and where another process owns the world
	cut   bool
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
	err := l.bothEnds(func(h *Host, e End) error {
		return h.route(func(r Route) bool { return r.Device == e.Device })
	})
	return errors.Join(err, l.awaitCarrier())
}

// awaitCarrier waits until what is sent over a veth link arrives: a device that is up before its peer is drops packets
// until the kernel has heard, a moment later, that the peer is up too.
func (l *Link) awaitCarrier() error {
	if l.spec.Emulated() {
		return nil
	}
	return l.bothEnds(func(h *Host, e End) error {
		if err := inside.AwaitCarrier(h.ns.link, e.Device); err != nil {
			return fmt.Errorf("host %s: %w", h.spec.Name, err)
		}
		return nil
	})
}

// Restore sets both devices up again, with their addresses and routes, and mends a cut.
func Restore() Change {
	return func(l *Link) error {
		if l.index >= 0 {
			if err := l.order(func() { l.cut = false }); err != nil {
				return err
			}
		}
		return l.up()
	}
}

// Cut loses every packet without a sign: both devices stay up, as when a network dies further away.
func Cut() Change {
	return func(l *Link) error { return l.order(func() { l.cut = true }) }
}

// Reshape sets the shape of both directions. Packets already under way keep their time.
func Reshape(ab, ba Shape) Change {
	return func(l *Link) error {
		if err := errors.Join(ab.Validate(), ba.Validate()); err != nil {
			return err
		}
		return l.order(func() { l.spec.AtoB, l.spec.BtoA = ab, ba })
	}
}

// Loss sets the probability of loss in both directions.
func Loss(p float64) Change {
	return func(l *Link) error {
		ab, ba := l.spec.AtoB, l.spec.BtoA
		ab.Loss, ba.Loss = p, p
		return Reshape(ab, ba)(l)
	}
}

// Delay sets the one-way delay of both directions.
func Delay(d time.Duration) Change {
	return func(l *Link) error {
		ab, ba := l.spec.AtoB, l.spec.BtoA
		ab.Delay, ba.Delay = d, d
		return Reshape(ab, ba)(l)
	}
}

// order changes what the emulator does, after f has changed what the link says.
func (l *Link) order(f func()) error {
	if l.index < 0 {
		return ErrNotEmulated
	}
	f()
	_, err := l.in.engine.ask(order{Link: l.index, AB: l.spec.AtoB, BA: l.spec.BtoA, Cut: l.cut})
	return err
}

// Readdress gives the device of one host other addresses, as DHCP or roaming does, and sets the routes over it again:
// setting an address away takes the routes along.
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

// Status says what an emulated link of this process carried, and how late.
func (l *Link) Status() (LinkStatus, error) {
	if l.index < 0 {
		return LinkStatus{}, ErrNotEmulated
	}
	a, err := l.in.engine.ask(order{Link: -1})
	if err != nil {
		return LinkStatus{}, err
	}
	return a.Links[l.index], nil
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

// createVeth makes the devices of a link that is not emulated.
func (l *Link) createVeth() error {
	a, b := l.in.Host(l.spec.A.Host), l.in.Host(l.spec.B.Host)
	return a.ns.link.LinkAdd(&netlink.Veth{
		LinkAttrs:     netlink.LinkAttrs{Name: l.spec.A.Device, MTU: l.spec.mtu(), TxQLen: 1000},
		PeerName:      l.spec.B.Device,
		PeerMTU:       uint32(l.spec.mtu()),
		PeerTxQLen:    1000,
		PeerNamespace: netlink.NsFd(b.ns.handle),
	})
}

// createTUN makes the devices of an emulated link. They last as long as their files.
func (l *Link) createTUN() (files []*os.File, err error) {
	for _, e := range []End{l.spec.A, l.spec.B} {
		err := l.in.Host(e.Host).Do(func() error {
			f, err := openTUN(e.Device)
			if err == nil {
				files = append(files, f)
			}
			return err
		})
		if err != nil {
			return files, err
		}
	}
	return files, nil
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
